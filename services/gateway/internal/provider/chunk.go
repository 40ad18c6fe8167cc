package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// A chunk is what one chat.completion.chunk, or a whole chat.completion, says
// about its first choice, before anything is made uniform across frames.
type chunk struct {
	id, model string
	text      string
	reasoning string
	tools     []wireTool // valid until the next decode
	finish    string     // the vendor's word
	usage     Usage
	hasUsage  bool
	fail      json.RawMessage // an error object, when the frame has one
	answered  bool            // it has a choice at all
}

// A wireTool is a tool-call delta as the vendor numbers it.
type wireTool struct {
	index     int
	hasIndex  bool
	id        string
	name      string
	arguments string
}

// A decoder reads chunks. It keeps the strings that repeat in every chunk of a
// stream, and its buffers; it belongs to one stream.
type decoder struct {
	id, model string
	tools     []wireTool
	scratch   []byte
}

var errNotAChunk = errors.New("not a chat completion chunk")

// decode reads data. Common shapes take the hand-written scanner; whatever it
// does not know takes encoding/json. Where both can read a chunk they agree (see
// FuzzChunk).
func (d *decoder) decode(data []byte) (chunk, error) {
	if c, ok := d.scan(data); ok {
		return c, nil
	}
	return d.parse(data)
}

type object map[string]json.RawMessage

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// parse reads any chunk with encoding/json. Keys match exactly and the last of
// repeated ones wins.
func (d *decoder) parse(data []byte) (chunk, error) {
	var top object
	if err := json.Unmarshal(data, &top); err != nil {
		return chunk{}, err
	}
	if top == nil {
		return chunk{}, errNotAChunk
	}
	var c chunk
	c.id, c.model = textOf(top["id"]), textOf(top["model"])
	c.fail = failOf(top)
	c.usage, c.hasUsage = usageOf(top["usage"])
	if x := objectOf(top["x_groq"]); x != nil {
		if !c.hasUsage {
			c.usage, c.hasUsage = usageOf(x["usage"])
		}
		if c.fail == nil {
			c.fail = failOf(object{"error": x["error"]})
		}
	}
	choice, err := firstChoice(top["choices"])
	if err != nil || choice == nil {
		return c, err
	}
	c.answered = true
	if !c.hasUsage {
		c.usage, c.hasUsage = usageOf(choice["usage"])
	}
	if c.fail == nil {
		c.fail = failOf(object{"error": choice["error"]})
	}
	c.finish = textOf(choice["finish_reason"])
	body := choice["delta"]
	if isNull(body) {
		body = choice["message"]
	}
	return c, d.parseDelta(body, &c)
}

func (d *decoder) parseDelta(raw json.RawMessage, c *chunk) error {
	if isNull(raw) {
		return nil
	}
	var delta object
	if err := json.Unmarshal(raw, &delta); err != nil {
		return err
	}
	var inContent string
	var err error
	if c.text, inContent, err = contentOf(delta["content"]); err != nil {
		return err
	}
	// A refusal is the answer's text under another name.
	c.text += textOf(delta["refusal"])
	c.reasoning = reasoningOf(delta)
	if c.reasoning == "" {
		c.reasoning = inContent
	}
	d.tools = d.tools[:0]
	if !isNull(delta["tool_calls"]) {
		var calls []object
		if err := json.Unmarshal(delta["tool_calls"], &calls); err != nil {
			return err
		}
		for _, call := range calls {
			if call != nil {
				d.tools = append(d.tools, toolOf(call))
			}
		}
	}
	if f := objectOf(delta["function_call"]); f != nil && len(d.tools) == 0 {
		d.tools = append(d.tools, wireTool{hasIndex: true, name: textOf(f["name"]), arguments: argumentsOf(f["arguments"])})
	}
	c.tools = d.tools
	return nil
}

// firstChoice gives the choice with index 0; one without an index counts by its
// place.
func firstChoice(raw json.RawMessage) (object, error) {
	if isNull(raw) {
		return nil, nil
	}
	var choices []object
	if err := json.Unmarshal(raw, &choices); err != nil {
		return nil, err
	}
	for i, c := range choices {
		n, ok := intOf(c["index"])
		if c != nil && (ok && n == 0 || !ok && i == 0) {
			return c, nil
		}
	}
	return nil, nil
}

// failOf gives the error object of a frame: a filled "error", or the whole
// frame when it calls itself one.
func failOf(o object) json.RawMessage {
	switch e := o["error"]; string(e) {
	case "", "null", "false", `""`, "{}":
	default:
		return e
	}
	if textOf(o["object"]) == "error" {
		if whole, err := json.Marshal(o); err == nil {
			return whole
		}
	}
	return nil
}

// contentOf reads a text, null, or an array of parts. Thinking parts are
// reasoning.
func contentOf(raw json.RawMessage) (text, reasoning string, err error) {
	if isNull(raw) {
		return "", "", nil
	}
	if raw[0] != '[' {
		err = json.Unmarshal(raw, &text)
		return text, "", err
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", "", err
	}
	var texts, thoughts strings.Builder
	for _, raw := range parts {
		part := objectOf(raw)
		if part == nil {
			texts.WriteString(textOf(raw))
			continue
		}
		texts.WriteString(textOf(part["text"]))
		thoughts.WriteString(thinkingOf(part["thinking"]))
	}
	return texts.String(), thoughts.String(), nil
}

// reasoningOf reads the first of the fields that vendors use. They often send
// the same text in several, so it is emitted once.
func reasoningOf(delta object) string {
	for _, name := range []string{"reasoning_content", "reasoning", "thinking"} {
		if s := thinkingOf(delta[name]); s != "" {
			return s
		}
	}
	return thinkingOf(delta["reasoning_details"])
}

// thinkingOf reads a text, a part with a text, or an array of them.
func thinkingOf(raw json.RawMessage) string {
	if isNull(raw) {
		return ""
	}
	switch raw[0] {
	case '[':
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return ""
		}
		var s strings.Builder
		for _, p := range parts {
			if len(p) > 0 && p[0] != '[' {
				s.WriteString(thinkingOf(p))
			}
		}
		return s.String()
	case '{':
		part := objectOf(raw)
		for _, name := range []string{"text", "summary", "content"} {
			if s := textOf(part[name]); s != "" {
				return s
			}
		}
		return ""
	}
	return textOf(raw)
}

func toolOf(call object) wireTool {
	t := wireTool{id: textOf(call["id"])}
	t.index, t.hasIndex = intOf(call["index"])
	if f := objectOf(call["function"]); f != nil {
		t.name, t.arguments = textOf(f["name"]), argumentsOf(f["arguments"])
	}
	return t
}

// argumentsOf reads arguments: a text, or for some vendors the object itself.
func argumentsOf(raw json.RawMessage) string {
	if isNull(raw) {
		return ""
	}
	if raw[0] == '"' {
		return textOf(raw)
	}
	return string(raw)
}

// usageOf reads usage. It is valid with both counts, not both zero (no prompt
// is empty: all zeros is a placeholder); anything else is not a report.
func usageOf(raw json.RawMessage) (Usage, bool) {
	o := objectOf(raw)
	prompt, ok1 := countOf(o["prompt_tokens"])
	completion, ok2 := countOf(o["completion_tokens"])
	if !ok1 || !ok2 || prompt+completion == 0 {
		return Usage{}, false
	}
	u := Usage{Prompt: prompt, Completion: completion}
	u.Cached, _ = countOf(objectOf(o["prompt_tokens_details"])["cached_tokens"])
	if u.Cached == 0 {
		u.Cached, _ = countOf(o["prompt_cache_hit_tokens"])
	}
	u.Reasoning, _ = countOf(objectOf(o["completion_tokens_details"])["reasoning_tokens"])
	return u, true
}

// countMax bounds a reported count: beyond it a report is nonsense.
const countMax = 1 << 40

func countOf(raw json.RawMessage) (uint64, bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(f >= 0 && f <= countMax) || f != float64(uint64(f)) {
		return 0, false
	}
	return uint64(f), true
}

func intOf(raw json.RawMessage) (int, bool) {
	n, err := strconv.Atoi(string(raw))
	return n, err == nil
}

func objectOf(raw json.RawMessage) object {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

// textOf reads a string; a number is taken as it is written; the rest is "".
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	if raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	}
	if bytes.IndexByte([]byte("-0123456789"), raw[0]) >= 0 {
		return string(raw)
	}
	return ""
}
