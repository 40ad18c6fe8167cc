package frames

import "github.com/tollgate-platform/tollgate/services/gateway/internal/provider"

// OpenAI writes chat.completion.chunk lines, as the official SDKs read them.
type OpenAI struct {
	head     Head
	prefix   []byte // everything of a chunk up to its choices
	finished bool   // the chunk with the finish reason was written
}

// NewOpenAI makes the encoder of one answer.
func NewOpenAI(h Head) *OpenAI {
	o := &OpenAI{head: h}
	o.prefix = appendText(o.prefix, `data: {"id":`, completionID(h.RequestID))
	o.prefix = appendInt(o.prefix, `,"object":"chat.completion.chunk","created":`, h.Created)
	o.prefix = appendText(o.prefix, `,"model":`, h.Model)
	o.prefix = append(o.prefix, `,"choices":[`...)
	return o
}

func completionID(request string) string { return "chatcmpl-" + request }

const (
	delta        = `{"index":0,"delta":{`
	deltaEnd     = `},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	deltaEndText = `},"logprobs":null,"finish_reason":`
)

// Start implements Encoder: the chunk that carries the role.
func (o *OpenAI) Start(b []byte) []byte {
	b = append(append(b, o.prefix...), delta+`"role":"assistant","content":""`...)
	return append(b, deltaEnd...)
}

// Event implements Encoder.
func (o *OpenAI) Event(b []byte, ev *provider.Event) []byte {
	if ev.Text != "" {
		b = append(append(b, o.prefix...), delta...)
		b = append(appendText(b, `"content":`, ev.Text), deltaEnd...)
	}
	if ev.Reasoning != "" {
		b = append(append(b, o.prefix...), delta...)
		b = append(appendText(b, `"reasoning_content":`, ev.Reasoning), deltaEnd...)
	}
	if len(ev.Tools) > 0 {
		b = append(append(b, o.prefix...), delta+`"tool_calls":[`...)
		for i := range ev.Tools {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendToolDelta(b, &ev.Tools[i])
		}
		b = append(append(b, ']'), deltaEnd...)
	}
	if ev.FinishReason != "" && !o.finished {
		b = o.finish(b, ev.FinishReason)
	}
	return b
}

// appendToolDelta leaves id and name out of later pieces, as OpenAI does: they
// are never null.
func appendToolDelta(b []byte, t *provider.ToolDelta) []byte {
	b = appendInt(b, `{"index":`, int64(t.Index))
	if t.ID != "" {
		b = append(appendText(b, `,"id":`, t.ID), `,"type":"function"`...)
	}
	b = append(b, `,"function":{`...)
	if t.Name != "" {
		b = append(appendText(b, `"name":`, t.Name), ',')
	}
	return append(appendText(b, `"arguments":`, t.Arguments), "}}"...)
}

func (o *OpenAI) finish(b []byte, reason string) []byte {
	o.finished = true
	b = append(append(b, o.prefix...), delta...)
	b = appendText(b, deltaEndText, reason)
	return append(b, "}]}\n\n"...)
}

// Fail implements Encoder.
func (o *OpenAI) Fail(b []byte, f Failure) []byte {
	o.finished = true // an answer that failed has no finish chunk
	b = appendText(b, `data: {"error":{"code":`, f.Code)
	b = appendText(b, `,"type":`, f.Type)
	b = appendText(b, `,"message":`, f.Message)
	b = append(b, `,"retryable":`...)
	b = appendBool(b, f.Retryable)
	b = appendText(b, `},"request_id":`, o.head.RequestID)
	return append(b, "}\n\n"...)
}

// End implements Encoder.
func (o *OpenAI) End(b []byte, e End) []byte {
	if !o.finished {
		b = o.finish(b, e.FinishReason)
	}
	if o.head.IncludeUsage {
		b = append(append(b, o.prefix...), `],"usage":`...)
		b = append(appendOpenAIUsage(b, e.Usage), "}\n\n"...)
	}
	return append(b, done...)
}

func appendOpenAIUsage(b []byte, u provider.Usage) []byte {
	b = appendCount(b, `{"prompt_tokens":`, u.Prompt)
	b = appendCount(b, `,"completion_tokens":`, u.Completion)
	b = appendCount(b, `,"total_tokens":`, u.Total)
	b = appendCount(b, `,"prompt_tokens_details":{"cached_tokens":`, u.Cached)
	b = appendCount(b, `},"completion_tokens_details":{"reasoning_tokens":`, u.Reasoning)
	return append(b, "}}"...)
}
