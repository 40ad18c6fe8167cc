package gateway_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/openai/openai-go/v3"
	sdkoption "github.com/openai/openai-go/v3/option"

	"github.com/tollgate-platform/tollgate/services/gateway"
)

// sdk is the official OpenAI client, pointed at the gateway and nothing else.
func (w *world) sdk(key string) sdk.Client {
	w.Helper()
	return sdk.NewClient(sdkoption.WithBaseURL(w.url+"/v1/"), sdkoption.WithAPIKey(key), sdkoption.WithHTTPClient(w.http), sdkoption.WithMaxRetries(0))
}

func chat(model, text string) sdk.ChatCompletionNewParams {
	return sdk.ChatCompletionNewParams{
		Model: "mock/" + model, MaxTokens: sdk.Int(50),
		Messages: []sdk.ChatCompletionMessageParamUnion{sdk.SystemMessage("be brief"), sdk.UserMessage(text)},
	}
}

// TestOfficialSDK drives the gateway with the official client, for which only
// the base URL has changed.
func TestOfficialSDK(t *testing.T) {
	t.Parallel()
	t.Run("streaming with usage", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		client := w.sdk(acmeKey)
		params := chat("echo", "a b c")
		params.StreamOptions = sdk.ChatCompletionStreamOptionsParam{IncludeUsage: sdk.Bool(true)}
		stream := client.Chat.Completions.NewStreaming(w.ctx(), params)
		defer stream.Close()
		acc := sdk.ChatCompletionAccumulator{}
		usages := 0
		for stream.Next() {
			chunk := stream.Current()
			if !acc.AddChunk(chunk) {
				t.Fatalf("the accumulator refused %s", chunk.RawJSON())
			}
			if chunk.JSON.Usage.Valid() {
				usages++
			}
		}
		w.must(stream.Err())
		if len(acc.Choices) != 1 || acc.Choices[0].Message.Content != "a b c" || acc.Choices[0].FinishReason != "stop" {
			t.Errorf("%+v", acc.Choices)
		}
		if usages != 1 || acc.Usage.CompletionTokens != 3 || acc.Usage.TotalTokens != acc.Usage.PromptTokens+3 {
			t.Errorf("%d usage chunks, %+v", usages, acc.Usage)
		}
		if bills := w.settled("acme"); len(bills) != 1 || bills[0].Units != acc.Usage.PromptTokens*inputPrice+3*outputPrice {
			t.Errorf("billed %+v", bills)
		}
	})
	t.Run("streaming without usage", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		client := w.sdk(acmeKey)
		stream := client.Chat.Completions.NewStreaming(w.ctx(), chat("echo", "a b c"))
		defer stream.Close()
		for stream.Next() {
			if chunk := stream.Current(); chunk.JSON.Usage.Valid() || len(chunk.Choices) != 1 {
				t.Errorf("an uninvited usage chunk: %s", chunk.RawJSON())
			}
		}
		w.must(stream.Err())
		w.settled("acme")
	})
	t.Run("tools", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		client := w.sdk(acmeKey)
		params := chat("tools", "weather?")
		params.Tools = []sdk.ChatCompletionToolUnionParam{sdk.ChatCompletionFunctionTool(sdk.FunctionDefinitionParam{
			Name: "get_weather", Parameters: sdk.FunctionParameters{"type": "object"},
		})}
		stream := client.Chat.Completions.NewStreaming(w.ctx(), params)
		defer stream.Close()
		acc := sdk.ChatCompletionAccumulator{}
		for stream.Next() {
			acc.AddChunk(stream.Current())
		}
		w.must(stream.Err())
		whole, err := client.Chat.Completions.New(w.ctx(), params)
		w.must(err)
		for name, choice := range map[string]sdk.ChatCompletionChoice{"streamed": acc.Choices[0], "whole": whole.Choices[0]} {
			calls := choice.Message.ToolCalls
			if len(calls) != 2 || calls[0].ID != "call_a" || calls[0].Function.Name != "get_weather" || calls[0].Function.Arguments != `{"city":"Oslo"}` ||
				calls[1].Function.Name != "get_time" || choice.FinishReason != "tool_calls" {
				t.Errorf("%s: %+v, finish %s", name, calls, choice.FinishReason)
			}
		}
		if !strings.Contains(string(w.mock.Records()[0].Body), `"get_weather"`) {
			t.Error("tools were not forwarded")
		}
		w.settled("acme")
	})
	t.Run("not streamed", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		client := w.sdk(acmeKey)
		got, err := client.Chat.Completions.New(w.ctx(), chat("reasoning", "a b"))
		w.must(err)
		if got.Choices[0].Message.Content != "a b" || got.Object != "chat.completion" || got.Usage.CompletionTokensDetails.ReasoningTokens != 3 {
			t.Errorf("%s", got.RawJSON())
		}
		if r := got.Choices[0].Message.JSON.ExtraFields["reasoning_content"].Raw(); r != `"Let me think."` {
			t.Errorf("reasoning_content %s", r)
		}
		models, err := client.Models.List(w.ctx())
		w.must(err)
		if len(models.Data) == 0 || models.Data[0].Object != "model" {
			t.Errorf("%+v", models)
		}
		w.settled("acme")
	})
	t.Run("errors", func(t *testing.T) {
		t.Parallel()
		w := setup(t, withConfig(func(c *gateway.Config) { c.Server.FirstFrameHoldMS = 60_000 }))
		for _, tt := range []struct {
			key, model string
			status     int
			code, kind string
		}{
			{"wrong", "echo", 401, "unauthorized", "authentication_error"},
			{acmeKey, "none", 404, "invalid_model", "not_found_error"},
			{adminKey, "echo", 403, "forbidden", "permission_error"},
			{acmeKey, "status-429", 502, "upstream_rate_limited", "api_error"},
			{acmeKey, "error-first", 502, "upstream_unavailable", "api_error"},
		} {
			client := w.sdk(tt.key)
			_, err := client.Chat.Completions.New(w.ctx(), chat(tt.model, "x"))
			stream := client.Chat.Completions.NewStreaming(w.ctx(), chat(tt.model, "x"))
			for stream.Next() {
				t.Errorf("%s: a chunk before a real status: %s", tt.model, stream.Current().RawJSON())
			}
			for form, err := range map[string]error{"whole": err, "streamed": stream.Err()} {
				e, ok := errors.AsType[*sdk.Error](err)
				if !ok || e.StatusCode != tt.status || e.Code != tt.code || e.Type != tt.kind || e.Message == "" {
					t.Errorf("%s %s: %v (%T)", tt.model, form, err, err)
				}
			}
			_ = stream.Close()
		}
		client := w.sdk(poorKey)
		broke := chat("echo", "x")
		broke.MaxTokens = sdk.Int(60)
		_, err := client.Chat.Completions.New(w.ctx(), broke)
		if e, ok := errors.AsType[*sdk.Error](err); !ok || e.StatusCode != http.StatusPaymentRequired || e.Code != "budget_exhausted" || e.Type != "billing_error" {
			t.Errorf("%v", err)
		}
		w.settled("acme")
	})
	t.Run("an error after streaming began", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		client := w.sdk(acmeKey)
		stream := client.Chat.Completions.NewStreaming(w.ctx(), chat("error-mid", "a b c d"))
		defer stream.Close()
		text := ""
		for stream.Next() {
			text += stream.Current().Choices[0].Delta.Content
		}
		if text != "a b" || stream.Err() == nil || !strings.Contains(stream.Err().Error(), "upstream_unavailable") {
			t.Errorf("%q, then %v", text, stream.Err())
		}
		w.settled("acme")
	})
}
