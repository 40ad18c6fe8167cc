package provider

import (
	"unicode/utf16"
	"unicode/utf8"
)

// scan reads the chunk shapes that vendors send for nearly every token, in one
// pass and with one allocation for the text. It says false for anything else,
// valid or not: escapes in keys, repeated keys, errors, arrays as content, broken
// UTF-8. What it accepts, encoding/json would accept and read
// the same way.
func (d *decoder) scan(data []byte) (chunk, bool) {
	s := scanner{b: data}
	var c chunk
	var seen uint8
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "id":
			return once(&seen, 1) && s.same(&d.id, &c.id)
		case "model":
			return once(&seen, 2) && s.same(&d.model, &c.model)
		case "choices":
			return once(&seen, 4) && d.scanChoices(&s, &c)
		case "object":
			// "error" is a vendor's way to say that the whole frame is one.
			v, ok := s.text()
			return once(&seen, 8) && ok && string(v.raw) != "error" && !v.escaped
		case "usage":
			return once(&seen, 16) && (s.null() || scanUsage(&s, &c))
		case "error", "x_groq":
			return s.null()
		}
		return s.skip(0)
	})
	s.space()
	return c, ok && s.i == len(s.b)
}

func once(seen *uint8, bit uint8) bool {
	fresh := *seen&bit == 0
	*seen |= bit
	return fresh
}

func (d *decoder) scanChoices(s *scanner, c *chunk) bool {
	if !s.eat('[') {
		return false
	}
	if s.eat(']') {
		return true
	}
	var seen uint8
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "index":
			n, ok := s.small()
			return once(&seen, 1) && ok && n == 0
		case "delta":
			return once(&seen, 2) && d.scanDelta(s, c)
		case "finish_reason":
			v, ok := s.text()
			if !ok || !once(&seen, 4) {
				return false
			}
			c.finish, ok = d.finishWord(v)
			return ok
		case "message", "error", "usage":
			return s.null()
		}
		return s.skip(0)
	})
	c.answered = true
	return ok && s.eat(']')
}

// scanUsage reads a whole report of plain counts: some vendors repeat it in every
// chunk.
func scanUsage(s *scanner, c *chunk) bool {
	var seen uint8
	var u Usage
	var hits uint64
	read := func(bit uint8, into *uint64) bool {
		n, ok := s.count()
		*into = n
		return once(&seen, bit) && ok
	}
	detail := func(bit, inner uint8, name string, into *uint64) bool {
		return once(&seen, bit) && (s.null() || s.object(func(key []byte) bool {
			if string(key) == name {
				return read(inner, into)
			}
			return s.skip(0)
		}))
	}
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "prompt_tokens":
			return read(1, &u.Prompt)
		case "completion_tokens":
			return read(2, &u.Completion)
		case "prompt_cache_hit_tokens":
			return read(4, &hits)
		case "prompt_tokens_details":
			return detail(8, 16, "cached_tokens", &u.Cached)
		case "completion_tokens_details":
			return detail(32, 64, "reasoning_tokens", &u.Reasoning)
		}
		return s.skip(0)
	})
	if u.Cached == 0 {
		u.Cached = hits
	}
	c.usage, c.hasUsage = u, true
	return ok && seen&3 == 3 && u.Prompt+u.Completion > 0
}

func (d *decoder) scanDelta(s *scanner, c *chunk) bool {
	var seen uint8
	var content, reasoningContent, reasoning, thinking token
	var details bool
	read := func(bit uint8, t *token) bool {
		var ok bool
		*t, ok = s.text()
		return once(&seen, bit) && ok
	}
	ok := s.object(func(key []byte) bool {
		switch string(key) {
		case "content":
			return read(1, &content)
		case "reasoning_content":
			return read(2, &reasoningContent)
		case "reasoning":
			return read(4, &reasoning)
		case "thinking":
			return read(8, &thinking)
		case "reasoning_details":
			details = !s.null()
			return once(&seen, 16) && (!details || s.skip(0))
		case "tool_calls":
			return once(&seen, 32) && (s.null() || d.scanTools(s, c))
		case "refusal", "function_call":
			return s.null()
		}
		return s.skip(0)
	})
	if !ok {
		return false
	}
	think := reasoningContent
	if len(think.raw) == 0 {
		think = reasoning
	}
	if len(think.raw) == 0 {
		think = thinking
	}
	if details && len(think.raw) == 0 {
		return false
	}
	if c.text, ok = d.string(content); !ok {
		return false
	}
	c.reasoning, ok = d.string(think)
	return ok
}

func (d *decoder) scanTools(s *scanner, c *chunk) bool {
	d.tools = d.tools[:0]
	if !s.eat('[') {
		return false
	}
	for !s.eat(']') {
		if len(d.tools) > 0 && !s.eat(',') {
			return false
		}
		var t wireTool
		if !d.scanTool(s, &t) {
			return false
		}
		d.tools = append(d.tools, t)
	}
	c.tools = d.tools
	return true
}

func (d *decoder) scanTool(s *scanner, t *wireTool) bool {
	var seen uint8
	read := func(bit uint8, into *string) bool {
		v, ok := s.text()
		if !ok || !once(&seen, bit) {
			return false
		}
		*into, ok = d.string(v)
		return ok
	}
	return s.object(func(key []byte) bool {
		switch string(key) {
		case "index":
			t.index, t.hasIndex = s.small()
			return once(&seen, 1) && t.hasIndex
		case "id":
			return read(2, &t.id)
		case "function":
			return once(&seen, 4) && (s.null() || s.object(func(key []byte) bool {
				switch string(key) {
				case "name":
					return read(8, &t.name)
				case "arguments":
					return read(16, &t.arguments)
				}
				return s.skip(0)
			}))
		}
		return s.skip(0)
	})
}

// finishWord gives a finish reason without allocating for the usual ones.
func (d *decoder) finishWord(v token) (string, bool) {
	switch string(v.raw) {
	case "":
		return "", true
	case "stop":
		return "stop", true
	case "length":
		return "length", true
	case "tool_calls":
		return "tool_calls", true
	}
	return d.string(v)
}

// A token is a JSON string as it stands between its quotes; null is an empty one.
type token struct {
	raw     []byte
	escaped bool // it has a backslash
	wide    bool // it has bytes beyond ASCII
}

// string decodes a token. It refuses broken UTF-8 and lone surrogates.
func (d *decoder) string(t token) (string, bool) {
	if t.wide && !utf8.Valid(t.raw) {
		return "", false
	}
	if !t.escaped {
		return string(t.raw), true
	}
	out := d.scratch[:0]
	for i := 0; i < len(t.raw); i++ {
		c := t.raw[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++ // the scanner saw a byte behind every backslash
		switch c := t.raw[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case '"', '\\', '/':
			out = append(out, c)
		case 'u':
			r, size := unescape(t.raw[i+1:])
			if size == 0 {
				return "", false
			}
			out = utf8.AppendRune(out, r)
			i += size
		default:
			return "", false
		}
	}
	d.scratch = out
	return string(out), true
}

// unescape reads the digits behind \u, and the second half of a surrogate pair.
// It gives the bytes it took, 0 when they are not a character.
func unescape(b []byte) (rune, int) {
	r, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(b) < 10 || b[4] != '\\' || b[5] != 'u' {
		return 0, 0
	}
	low, ok := hex4(b[6:])
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 10
	}
	return 0, 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
