package provider

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	detailMax  = 1000 // runes of a vendor's text that a log keeps
	redactMark = "[redacted]"
)

// What looks like a credential: a bearer value, a word with a known prefix, a
// long opaque word.
var (
	bearerValue = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+|%20)[^\s"',;}\\]+`)
	knownPrefix = regexp.MustCompile(`\b(?:sk|pk|rk|gsk|nvapi|gwk|tgk|xai|hf|ghp|or|key)[-_][A-Za-z0-9_\-.*=+/]{4,}`)
	longOpaque  = regexp.MustCompile(`[A-Za-z0-9_\-=+]{24,}`)
)

// redact takes everything that looks like a credential out of a vendor's text,
// the route's own key first, and only then cuts it to detailMax runes: a cut key
// would no longer look like one.
func redact(text, key string) string {
	if key != "" {
		text = strings.ReplaceAll(text, key, redactMark)
	}
	text = bearerValue.ReplaceAllString(text, "$1 "+redactMark)
	text = knownPrefix.ReplaceAllString(text, redactMark)
	text = longOpaque.ReplaceAllString(text, redactMark)
	text = strings.ToValidUTF8(text, "�")
	if utf8.RuneCountInString(text) > detailMax {
		return string([]rune(text)[:detailMax])
	}
	return text
}
