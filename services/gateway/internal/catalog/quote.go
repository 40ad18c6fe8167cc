package catalog

import (
	"encoding/json"
	"math"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// tokensMax bounds every token count the arithmetic takes: a million million.
// Nothing real comes near it, and sums of a few cannot overflow.
const tokensMax uint64 = 1_000_000_000_000

// perMessage is what a chat template adds around one message, in tokens.
const perMessage = 4

// A Quote is a request's worst case before it runs.
type Quote struct {
	Units uint64 // nano-USD: the whole estimate and the whole output cap
	Items uint64 // tokens: prompt estimate + output cap
	// PromptTokens is the estimate and PromptUnits its price in nano-USD.
	PromptTokens uint64
	PromptUnits  uint64
}

// Quote prices the worst case of a prompt and an output cap. It fails with
// ErrCostRange when the numbers are absurd.
func (m *Model) Quote(prompt, maxTokens uint64) (Quote, error) {
	if prompt > tokensMax || maxTokens > tokensMax {
		return Quote{}, ErrCostRange
	}
	units, err := m.Prices.Cost(prompt, 0, maxTokens)
	if err != nil {
		return Quote{}, err
	}
	promptUnits, err := m.Prices.Cost(prompt, 0, 0)
	if err != nil {
		return Quote{}, err
	}
	return Quote{Units: units, Items: prompt + maxTokens, PromptTokens: prompt, PromptUnits: promptUnits}, nil
}

// A PromptSize is what the estimate, and limits on prompts, are made from.
type PromptSize struct {
	Messages uint64
	Runes    uint64
	Bytes    uint64
	Images   uint64
}

// PromptTokens is the pre-flight estimate of a prompt's tokens:
// ceil(max(runes/3.5, bytes/4)), 4 per message, the model's overhead and its
// fixed charge per image. It never overflows: absurd sizes give tokensMax.
func (m *Model) PromptTokens(s PromptSize) uint64 {
	if max(s.Messages, s.Runes, s.Bytes, s.Images) > math.MaxUint32 {
		return tokensMax
	}
	n := max(runesToTokens(s.Runes), (s.Bytes+3)/4) + perMessage*s.Messages + m.PromptOverhead + s.Images*m.ImageTokens
	return min(n, tokensMax)
}

// OutputTokens estimates the tokens of one delta: ceil(runes/3.5), so at least
// 1 for any text. Comments and errors are not output; do not count them.
func OutputTokens(delta string) uint64 {
	return runesToTokens(uint64(utf8.RuneCountInString(delta)))
}

// runesToTokens is ceil(n/3.5) in integers.
func runesToTokens(n uint64) uint64 { return (2*n + 6) / 7 }

// MeasurePrompt counts a request's prompt: every text in messages (tool calls
// and their results too), and the parameters that vendors put into the prompt
// (tools, functions, response_format). Roles, types and image data are not
// text: an image has a fixed charge. It fails with fault.Invalid when messages
// is not an array of objects.
func MeasurePrompt(messages json.RawMessage, params Params) (PromptSize, error) {
	var list []map[string]any
	if err := json.Unmarshal(messages, &list); err != nil || list == nil {
		return PromptSize{}, fault.Because(fault.Invalid, "MESSAGES_INVALID", "messages must be an array of objects", err)
	}
	s := PromptSize{Messages: uint64(len(list))}
	for _, m := range list {
		s.addObject(m)
	}
	for _, name := range []string{"tools", "functions", "response_format"} {
		if v, ok := params.Get(name); ok && string(v) != "null" {
			s.addText(string(v))
		}
	}
	return s, nil
}

func (s *PromptSize) addObject(m map[string]any) {
	for k, v := range m {
		if k != "role" && k != "type" {
			s.addValue(v)
		}
	}
}

func (s *PromptSize) addValue(v any) {
	switch v := v.(type) {
	case string:
		s.addText(v)
	case []any:
		for _, e := range v {
			if part, ok := e.(map[string]any); ok && isImage(part) {
				s.Images++
				part = withoutImageData(part)
				s.addObject(part)
				continue
			}
			s.addValue(e)
		}
	case map[string]any:
		s.addObject(v)
	}
}

func (s *PromptSize) addText(t string) {
	s.Bytes += uint64(len(t))
	s.Runes += uint64(utf8.RuneCountInString(t))
}

// isImage knows the content parts that carry an image. Only a part inside an
// array can be one: a whole message that calls itself an image is still text.
func isImage(part map[string]any) bool {
	switch part["type"] {
	case "image_url", "image", "input_image":
		return true
	}
	return false
}

// withoutImageData leaves out what the fixed charge covers, and nothing else:
// text hidden in an image part is still counted.
func withoutImageData(part map[string]any) map[string]any {
	rest := make(map[string]any, len(part))
	for k, v := range part {
		switch k {
		case "image_url", "image", "source", "detail":
		default:
			rest[k] = v
		}
	}
	return rest
}
