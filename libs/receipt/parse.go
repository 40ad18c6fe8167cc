package receipt

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Chains are read by a parser of our own because encoding/json is too kind for
// evidence: it takes the last of two equal keys, matches names in any case,
// and repairs text that is not UTF-8.

// Bounds of one line.
const (
	MaxLine    = 1 << 20 // bytes
	maxDepth   = 32      // nested lists and objects
	maxMembers = 64      // members of the line's own object
)

type valueKind uint8

const (
	kindNull valueKind = iota
	kindText
	kindTexts // a list of text, maybe empty
	kindCount // an integer in uint64's range, without sign, fraction or exponent
	kindOther
)

// value is a JSON value, kept as far as lines need it.
type value struct {
	text  string
	texts []string
	count uint64
	kind  valueKind
	read  bool
}

// parsed is a line's object. Its accessors remember the first error.
type parsed struct {
	members map[string]*value
	order   []string
	err     error
}

func (p *parsed) fail(name, rule string) {
	if p.err == nil {
		p.err = malformed(name + " " + rule)
	}
}

func (p *parsed) take(name string) *value {
	v := p.members[name]
	if v != nil {
		v.read = true
	}
	return v
}

// need reads text that must be there.
func (p *parsed) need(name string) string {
	v := p.take(name)
	if v == nil || v.kind != kindText {
		p.fail(name, "is missing or not text")
		return ""
	}
	return v.text
}

type nulls bool

const (
	nullIsAbsent  nulls = true
	nullIsRefused nulls = false
)

// optional reads text that may be missing.
func (p *parsed) optional(name string, null nulls) *string {
	v := p.take(name)
	switch {
	case v == nil, v.kind == kindNull && null == nullIsAbsent:
		return nil
	case v.kind != kindText:
		p.fail(name, "must be text")
		return nil
	}
	return &v.text
}

func (p *parsed) list(name string) []string {
	v := p.take(name)
	if v == nil || v.kind != kindTexts {
		p.fail(name, "must be a list of text")
		return nil
	}
	return v.texts
}

func (p *parsed) count(name string) uint64 {
	v := p.take(name)
	if v == nil || v.kind != kindCount || v.count == 0 {
		p.fail(name, "must be an integer of at least 1")
		return 0
	}
	return v.count
}

// unread names the first member that no accessor asked for.
func (p *parsed) unread() string {
	for _, name := range p.order {
		if !p.members[name].read {
			return name
		}
	}
	return ""
}

// IsJSON says whether text is one whole JSON value, as the parser here reads
// JSON. Recovery asks it whether a torn tail could be a committed entry.
func IsJSON(text []byte) bool {
	if len(text) > MaxLine || !utf8.Valid(text) {
		return false
	}
	s := &scanner{in: string(text)}
	s.value(0)
	s.space()
	return s.ok() && s.at == len(s.in)
}

func parseObject(text []byte) (*parsed, error) {
	switch {
	case len(text) > MaxLine:
		return nil, malformed("a line is at most 1 MiB")
	case !utf8.Valid(text):
		return nil, malformed("a line must be UTF-8")
	}
	s := &scanner{in: string(text)}
	s.space()
	p := s.object()
	s.space()
	if s.ok() && s.at != len(s.in) {
		s.fail("nothing may follow the object")
	}
	if !s.ok() {
		return nil, malformed(s.rule + " (byte " + strconv.Itoa(s.at) + ")")
	}
	return p, nil
}

// scanner walks JSON text (RFC 8259). After the first failure it stays where
// it is and everything it returns is meaningless.
type scanner struct {
	in   string
	at   int
	rule string
}

func (s *scanner) ok() bool { return s.rule == "" }

func (s *scanner) fail(rule string) {
	if s.ok() {
		s.rule = rule
	}
}

func (s *scanner) peek() byte {
	if s.at < len(s.in) {
		return s.in[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.in) && strings.IndexByte(" \t\n\r", s.in[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) eat(c byte) bool {
	if s.ok() && s.at < len(s.in) && s.in[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) expect(c byte) {
	if !s.eat(c) {
		s.fail("expected " + strconv.QuoteRune(rune(c)))
	}
}

// object reads the line's own object.
func (s *scanner) object() *parsed {
	p := &parsed{members: make(map[string]*value, 16)}
	s.expect('{')
	s.space()
	if s.eat('}') {
		return p
	}
	for s.ok() {
		name := s.name()
		v := s.value(1)
		if !s.ok() {
			break
		}
		if p.members[name] != nil {
			s.fail("a key appears twice")
			break
		}
		if len(p.order) == maxMembers {
			s.fail("a line has at most 64 fields")
			break
		}
		p.members[name], p.order = &v, append(p.order, name)
		if s.more('}') {
			break
		}
	}
	return p
}

// name reads a member's name and its colon.
func (s *scanner) name() string {
	s.space()
	name := s.text()
	s.space()
	s.expect(':')
	return name
}

// more steps over what follows an element: it is true at the end.
func (s *scanner) more(end byte) (done bool) {
	s.space()
	if s.eat(end) {
		return true
	}
	s.expect(',')
	return !s.ok()
}

func (s *scanner) value(depth int) value {
	s.space()
	switch c := s.peek(); {
	case !s.ok():
	case c == '"':
		return value{kind: kindText, text: s.text()}
	case c == '[':
		return s.listValue(depth)
	case c == '{':
		s.objectValue(depth)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case s.word("null"):
		return value{kind: kindNull}
	case s.word("true"), s.word("false"):
	default:
		s.fail("expected a JSON value")
	}
	return value{kind: kindOther}
}

func (s *scanner) word(w string) bool {
	if strings.HasPrefix(s.in[s.at:], w) {
		s.at += len(w)
		return true
	}
	return false
}

func (s *scanner) listValue(depth int) value {
	list := value{kind: kindTexts, texts: []string{}}
	s.deeper(depth)
	s.expect('[')
	s.space()
	if s.eat(']') {
		return list
	}
	for s.ok() {
		v := s.value(depth + 1)
		if v.kind != kindText {
			list.kind = kindOther
		}
		list.texts = append(list.texts, v.text)
		if s.more(']') {
			break
		}
	}
	return list
}

// objectValue steps over an object inside a line: no field of ours is one.
func (s *scanner) objectValue(depth int) {
	s.deeper(depth)
	s.expect('{')
	s.space()
	if s.eat('}') {
		return
	}
	for s.ok() {
		s.name()
		s.value(depth + 1)
		if s.more('}') {
			return
		}
	}
}

func (s *scanner) deeper(depth int) {
	if depth >= maxDepth {
		s.fail("nested too deep")
	}
}

func (s *scanner) number() value {
	start := s.at
	negative := s.eat('-')
	switch {
	case s.eat('0'):
	case s.digits() == 0:
		s.fail("a number needs digits")
	}
	whole := true
	if s.eat('.') {
		whole = false
		if s.digits() == 0 {
			s.fail("a fraction needs digits")
		}
	}
	if s.eat('e') || s.eat('E') {
		whole = false
		if !s.eat('+') {
			s.eat('-')
		}
		if s.digits() == 0 {
			s.fail("an exponent needs digits")
		}
	}
	if s.ok() && whole && !negative {
		if n, err := strconv.ParseUint(s.in[start:s.at], 10, 64); err == nil {
			return value{kind: kindCount, count: n}
		}
	}
	return value{kind: kindOther}
}

func (s *scanner) digits() (n int) {
	for s.peek() >= '0' && s.peek() <= '9' {
		s.at++
		n++
	}
	return n
}

// text reads a JSON string.
func (s *scanner) text() string {
	s.expect('"')
	start := s.at
	for s.ok() && s.at < len(s.in) {
		switch c := s.in[s.at]; {
		case c == '"':
			s.at++
			return s.in[start : s.at-1]
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			s.fail("a control character must be escaped")
		default:
			s.at++
		}
	}
	s.fail("text without its closing quote")
	return ""
}

// escaped goes on with text at its first escape.
func (s *scanner) escaped(start int) string {
	b := []byte(s.in[start:s.at])
	for s.ok() && s.at < len(s.in) {
		c := s.in[s.at]
		s.at++
		switch {
		case c == '"':
			return string(b)
		case c == '\\':
			b = s.escape(b)
		case c < 0x20:
			s.fail("a control character must be escaped")
		default:
			b = append(b, c)
		}
	}
	s.fail("text without its closing quote")
	return ""
}

func (s *scanner) escape(b []byte) []byte {
	c := s.peek()
	s.at++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 && c != 0 {
		return append(b, "\"\\/\b\f\n\r\t"[i])
	}
	if c != 'u' {
		s.fail("an unknown escape")
		return b
	}
	r := s.hex4()
	if utf16.IsSurrogate(r) {
		if !s.eat('\\') || !s.eat('u') {
			s.fail("half a surrogate pair")
			return b
		}
		if r = utf16.DecodeRune(r, s.hex4()); r == utf8.RuneError {
			s.fail("half a surrogate pair")
		}
	}
	return utf8.AppendRune(b, r)
}

func (s *scanner) hex4() (r rune) {
	for range 4 {
		switch c := s.peek(); {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			s.fail(`\u needs four hex digits`)
			return r
		}
		s.at++
	}
	return r
}
