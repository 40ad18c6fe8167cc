package frames

import "github.com/tollgate-platform/tollgate/services/gateway/internal/provider"

// Normalized writes the gateway's own frames, which are the same for every
// vendor.
type Normalized struct {
	head      Head
	id, model string // the provider's, as last told in a meta frame
}

// NewNormalized makes the encoder of one answer.
func NewNormalized(h Head) *Normalized { return &Normalized{head: h} }

// Start implements Encoder.
func (n *Normalized) Start(b []byte) []byte {
	b = appendText(b, "event: start\ndata: {\"request_id\":", n.head.RequestID)
	b = appendText(b, `,"model":`, n.head.Model)
	b = appendText(b, `,"tenant":`, n.head.Tenant)
	b = appendCount(b, `,"max_output_tokens":`, n.head.MaxTokens)
	b = append(b, `,"metadata":`...)
	if n.head.Metadata == nil {
		b = append(b, "null"...)
	} else {
		b = appendOneLine(b, n.head.Metadata)
	}
	return append(b, "}\n\n"...)
}

// appendOneLine appends JSON whose line breaks can only be white space between
// tokens: left in, they would end the frame's data line.
func appendOneLine(b, raw []byte) []byte {
	for _, c := range raw {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		b = append(b, c)
	}
	return b
}

// Event implements Encoder.
func (n *Normalized) Event(b []byte, ev *provider.Event) []byte {
	raw := ""
	if ev.FinishReason != "" && ev.RawFinish != ev.FinishReason {
		raw = ev.RawFinish
	}
	if ev.UpstreamID != n.id || ev.UpstreamModel != n.model || raw != "" {
		n.id, n.model = ev.UpstreamID, ev.UpstreamModel
		b = appendTextOrNull(b, "event: meta\ndata: {\"upstream_id\":", n.id)
		b = appendTextOrNull(b, `,"upstream_model":`, n.model)
		if raw != "" {
			b = appendText(b, `,"raw_finish_reason":`, raw)
		}
		b = append(b, "}\n\n"...)
	}
	if ev.Text != "" {
		b = append(appendText(b, `data: {"token":`, ev.Text), "}\n\n"...)
	}
	if ev.Reasoning != "" {
		b = append(appendText(b, "event: reasoning\ndata: {\"reasoning\":", ev.Reasoning), "}\n\n"...)
	}
	for i := range ev.Tools {
		t := &ev.Tools[i]
		b = appendInt(b, "event: tool\ndata: {\"index\":", int64(t.Index))
		b = appendText(b, `,"id":`, t.ID)
		b = appendText(b, `,"name":`, t.Name)
		b = append(appendText(b, `,"arguments":`, t.Arguments), "}\n\n"...)
	}
	return b
}

// Fail implements Encoder.
func (n *Normalized) Fail(b []byte, f Failure) []byte {
	b = appendText(b, "event: error\ndata: {\"error\":{\"code\":", f.Code)
	b = appendText(b, `,"message":`, f.Message)
	b = append(b, `,"retryable":`...)
	b = appendBool(b, f.Retryable)
	b = appendText(b, `},"request_id":`, n.head.RequestID)
	return append(b, "}\n\n"...)
}

// End implements Encoder.
func (n *Normalized) End(b []byte, e End) []byte {
	b = appendText(b, "event: end\ndata: {\"finish_reason\":", e.FinishReason)
	b = appendUsage(append(b, `,"usage":`...), e.Usage)
	b = appendInt(b, `,"cost_nano_usd":`, e.CostNanoUSD)
	b = appendInt(b, `,"duration_ms":`, e.Duration.Milliseconds())
	if e.TTFT < 0 {
		b = append(b, `,"ttft_ms":null`...)
	} else {
		b = appendInt(b, `,"ttft_ms":`, e.TTFT.Milliseconds())
	}
	b = appendTextOrNull(b, `,"upstream_id":`, e.UpstreamID)
	return append(b, "}\n\n"+done...)
}

func appendUsage(b []byte, u provider.Usage) []byte {
	b = appendCount(b, `{"prompt_tokens":`, u.Prompt)
	b = appendCount(b, `,"completion_tokens":`, u.Completion)
	b = appendCount(b, `,"reasoning_tokens":`, u.Reasoning)
	b = appendCount(b, `,"total_tokens":`, u.Total)
	return append(b, '}')
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, "true"...)
	}
	return append(b, "false"...)
}
