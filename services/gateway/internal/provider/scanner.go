package provider

// A scanner walks JSON strictly. Its methods say false when what stands there is
// not what they read.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) eat(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

func (s *scanner) word(w string) bool {
	s.space()
	if len(s.b)-s.i >= len(w) && string(s.b[s.i:s.i+len(w)]) == w {
		s.i += len(w)
		return true
	}
	return false
}

func (s *scanner) null() bool { return s.word("null") }

// object reads an object, giving each key, which stands before its value.
func (s *scanner) object(value func(key []byte) bool) bool {
	if !s.eat('{') {
		return false
	}
	if s.eat('}') {
		return true
	}
	for {
		key, ok := s.quoted()
		// A key beyond plain ASCII may be another spelling of one we know.
		if !ok || key.escaped || key.wide || !s.eat(':') || !value(key.raw) {
			return false
		}
		if s.eat(',') {
			continue
		}
		return s.eat('}')
	}
}

// text reads a string or null.
func (s *scanner) text() (token, bool) {
	if s.null() {
		return token{}, true
	}
	return s.quoted()
}

// stop says whether a run of plain ASCII inside a string ends at c: a quote, a
// backslash, a control character, or a byte beyond ASCII. The masks are a table
// of the first 128 bytes.
func stop(c byte) bool {
	const low, high = 1<<32 - 1 | 1<<'"', 1 << ('\\' - 64)
	switch c >> 6 {
	case 0:
		return uint64(low)>>(c&63)&1 != 0
	case 1:
		return uint64(high)>>(c&63)&1 != 0
	}
	return true
}

// quoted reads a string. Escapes are checked when they are decoded, except in
// skipped strings; see skipString.
func (s *scanner) quoted() (token, bool) {
	if !s.eat('"') {
		return token{}, false
	}
	var t token
	from := s.i
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case !stop(c):
			s.i++
		case c == '"':
			t.raw = s.b[from:s.i]
			s.i++
			return t, true
		case c == '\\':
			t.escaped = true
			s.i += 2
		case c < ' ':
			return token{}, false
		default:
			t.wide = true
			s.i++
		}
	}
	return token{}, false
}

// small reads a whole number of up to three digits.
func (s *scanner) small() (int, bool) {
	n, ok := s.count()
	return int(n), ok && n < 1000
}

// count reads a whole number of up to twelve digits, which is below countMax.
func (s *scanner) count() (uint64, bool) {
	s.space()
	from, n := s.i, uint64(0)
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		n = n*10 + uint64(s.b[s.i]-'0')
		if s.i++; s.i-from > 12 {
			return 0, false
		}
	}
	leading := s.i-from > 1 && s.b[from] == '0'
	return n, s.i > from && !leading && s.ended()
}

// ended says whether a number ends here.
func (s *scanner) ended() bool {
	if s.i == len(s.b) {
		return true
	}
	switch s.b[s.i] {
	case ',', ']', '}', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// skip reads over any value of moderate depth.
func (s *scanner) skip(depth int) bool {
	const depthMax = 16
	s.space()
	if s.i == len(s.b) || depth > depthMax {
		return false
	}
	switch s.b[s.i] {
	case '"':
		return s.skipString()
	case '{':
		return s.object(func([]byte) bool { return s.skip(depth + 1) })
	case '[':
		s.i++
		if s.eat(']') {
			return true
		}
		for s.skip(depth + 1) {
			if !s.eat(',') {
				return s.eat(']')
			}
		}
		return false
	case 'n':
		return s.null()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	}
	return s.skipNumber()
}

// skipString reads over a string. One with escapes is left to encoding/json.
func (s *scanner) skipString() bool {
	t, ok := s.quoted()
	return ok && !t.escaped
}

func (s *scanner) skipNumber() bool {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	from := s.i
	if !s.digits() || s.i-from > 1 && s.b[from] == '0' {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return false
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return false
		}
	}
	return s.ended()
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

// same reads a string that is the same in every chunk of a stream, and keeps the
// one it has.
func (s *scanner) same(last, into *string) bool {
	t, ok := s.text()
	if !ok || t.escaped || t.wide {
		return false
	}
	if string(t.raw) != *last {
		*last = string(t.raw)
	}
	*into = *last
	return true
}
