package frames

import "github.com/tollgate-platform/tollgate/services/gateway/internal/provider"

// CompleteDocument is the answer of /v1/chat/complete.
func CompleteDocument(h Head, c *provider.Completion, e End) []byte {
	b := make([]byte, 0, 512+len(c.Text)+len(c.Text)/8)
	b = appendText(b, `{"request_id":`, h.RequestID)
	b = appendText(b, `,"model":`, h.Model)
	b = appendText(b, `,"tenant":`, h.Tenant)
	b = appendText(b, `,"content":`, c.Text)
	b = appendTextOrNull(b, `,"reasoning":`, c.Reasoning)
	b = append(b, `,"tool_calls":[`...)
	for i, t := range c.Tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, `{"index":`, int64(i))
		b = appendText(b, `,"id":`, t.ID)
		b = appendText(b, `,"name":`, t.Name)
		b = append(appendText(b, `,"arguments":`, t.Arguments), '}')
	}
	b = appendText(b, `],"finish_reason":`, e.FinishReason)
	b = appendUsage(append(b, `,"usage":`...), e.Usage)
	b = appendInt(b, `,"cost_nano_usd":`, e.CostNanoUSD)
	b = appendInt(b, `,"duration_ms":`, e.Duration.Milliseconds())
	b = appendTextOrNull(b, `,"upstream_id":`, c.UpstreamID)
	b = appendTextOrNull(b, `,"upstream_model":`, c.UpstreamModel)
	b = append(b, `,"metadata":`...)
	if h.Metadata == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, h.Metadata...)
	}
	return append(b, "}\n"...)
}

// CompletionsDocument is the answer of /v1/chat/completions, not streamed.
func CompletionsDocument(h Head, c *provider.Completion, e End) []byte {
	b := make([]byte, 0, 512+len(c.Text)+len(c.Text)/8)
	b = appendText(b, `{"id":`, completionID(h.RequestID))
	b = appendInt(b, `,"object":"chat.completion","created":`, h.Created)
	b = appendText(b, `,"model":`, h.Model)
	b = append(b, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
	if c.Text == "" && len(c.Tools) > 0 {
		b = append(b, "null"...)
	} else {
		b = appendString(b, c.Text)
	}
	b = append(b, `,"refusal":null`...)
	if c.Reasoning != "" {
		b = appendText(b, `,"reasoning_content":`, c.Reasoning)
	}
	if len(c.Tools) > 0 {
		b = append(b, `,"tool_calls":[`...)
		for i, t := range c.Tools {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, `{"id":`, t.ID)
			b = appendText(b, `,"type":"function","function":{"name":`, t.Name)
			b = append(appendText(b, `,"arguments":`, t.Arguments), "}}"...)
		}
		b = append(b, ']')
	}
	b = appendText(b, `},"logprobs":null,"finish_reason":`, e.FinishReason)
	b = appendOpenAIUsage(append(b, `}],"usage":`...), e.Usage)
	return append(b, "}\n"...)
}
