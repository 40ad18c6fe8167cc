package provider

import (
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
)

// callsMax bounds the tool calls of one answer, so that a provider cannot grow
// the table without end.
const callsMax = 1024

// A normal turns a stream's chunks into events that are the same for every
// vendor. It belongs to one stream.
type normal struct {
	quirks     catalog.Quirks
	calls      []call
	deltas     []ToolDelta // reused by every event
	id, model  string
	meaningful bool // an event with content was made
	finished   bool // a finish reason was seen
}

// A call is a tool call under way; its dense index is its place.
type call struct {
	wire int // the vendor's index, -1 when it gave none
	id   string
	name string
}

// event makes an event of a chunk. It says false when the chunk says nothing
// new, and errTooManyCalls when there are too many tool calls.
func (n *normal) event(c *chunk) (ev Event, say bool, err error) {
	ev.Text, ev.Reasoning = c.text, c.reasoning
	if len(c.tools) > 0 {
		if ev.Tools, err = n.tools(c.tools); err != nil {
			return Event{}, false, err
		}
	}
	if c.id != "" && c.id != n.id || c.model != "" && c.model != n.model {
		say = true
		n.id, n.model = or(c.id, n.id), or(c.model, n.model)
	}
	ev.UpstreamID, ev.UpstreamModel = n.id, n.model
	if c.finish != "" && !n.finished {
		n.finished = true
		ev.RawFinish = c.finish
		ev.FinishReason = finishReason(c.finish, len(n.calls) > 0)
	}
	if c.hasUsage {
		ev.Usage, ev.HasUsage = settle(c.usage, n.quirks), true
	}
	if ev.Meaningful() {
		n.meaningful = true
		return ev, true, nil
	}
	return ev, say || ev.FinishReason != "" || ev.HasUsage, nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// settle makes usage uniform: Prompt includes Cached, and parts are no larger
// than their whole.
func settle(u Usage, q catalog.Quirks) Usage {
	if q.CachedExcluded {
		u.Prompt += u.Cached
	}
	u.Cached = min(u.Cached, u.Prompt)
	u.Reasoning = min(u.Reasoning, u.Completion)
	u.Total = u.Prompt + u.Completion
	return u
}

// finishReason maps a vendor's word to the documented set. An answer with tool
// calls that just stopped ended in them; one that was cut short did not.
func finishReason(raw string, tools bool) string {
	switch raw {
	case "length", "max_tokens", "max_length", "model_length", "MAX_TOKENS":
		return "length"
	case "content_filter", "content_filtered", "safety", "SAFETY", "refusal":
		return "content_filter"
	case "tool_calls", "tool_use", "function_call":
		return "tool_calls"
	}
	if tools {
		return "tool_calls"
	}
	return "stop"
}

func (n *normal) tools(wire []wireTool) ([]ToolDelta, error) {
	n.deltas = n.deltas[:0]
	for i := range wire {
		t := &wire[i]
		at := n.find(t)
		if at < 0 {
			if len(n.calls) == callsMax {
				return nil, errTooManyCalls
			}
			at = len(n.calls)
			n.calls = append(n.calls, call{wire: -1})
			if t.hasIndex {
				n.calls[at].wire = t.index
			}
		}
		d := ToolDelta{Index: at, Arguments: t.arguments}
		c := &n.calls[at]
		if c.id == "" && t.id != "" {
			c.id, d.ID = t.id, t.id
		}
		if t.name != "" && t.name != c.name {
			c.name += t.name
			d.Name = t.name
		}
		n.deltas = append(n.deltas, d)
	}
	return n.deltas, nil
}

// find gives the dense index of the call that a delta belongs to, or -1 for a
// new one. An ID decides; without one, the latest call on the vendor's index;
// without that, the last call, unless a name starts another.
func (n *normal) find(t *wireTool) int {
	if t.id != "" {
		for i := range n.calls {
			if n.calls[i].id == t.id {
				return i
			}
		}
	}
	for i := len(n.calls) - 1; i >= 0; i-- {
		c := &n.calls[i]
		switch {
		case t.hasIndex && c.wire == t.index:
			if t.id != "" && c.id != "" {
				return -1 // a new ID on an old index
			}
			return i // the ID of a call may come late
		case !t.hasIndex && i == len(n.calls)-1 && t.id == "" && (t.name == "" || c.name == ""):
			return i
		}
	}
	return -1
}
