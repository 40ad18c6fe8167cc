package mockprovider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// UsageMode says when a stream reports usage. A document always does, except
// with UsageNever.
type UsageMode uint8

// The modes.
const (
	UsageAsked  UsageMode = iota // a last chunk with empty choices, if include_usage asks for it
	UsageAlways                  // the same, asked for or not
	UsageFinish                  // on the chunk with the finish reason
	UsageEvery                   // cumulatively, on every chunk
	UsageNever
)

// Usage is what the mock reports, in tokens.
type Usage struct {
	Prompt, Cached, Completion, Reasoning int
}

// A Tool is one tool call, its arguments sent in pieces.
type Tool struct {
	ID, Name  string
	Arguments []string
}

// An Answer is what the model says. Each reasoning and text element is one
// delta and one token.
type Answer struct {
	Reasoning []string
	Text      []string
	Tools     []Tool
	Finish    string // "" is stop, or tool_calls with Tools
	Usage     Usage
}

// A Script is how one request is answered. Its zero value is an empty answer.
type Script struct {
	// Status, with Header and Body, answers with something other than 200.
	Status int
	Header http.Header // added to any answer
	Body   string

	Answer Answer
	Usage  UsageMode
	// Frames, when set, are sent verbatim instead of the answer, one flush
	// each.
	Frames []string
	// Document answers a stream request with one JSON document.
	Document bool
	NoDone   bool   // leave out data: [DONE]
	NoFinish bool   // leave out the finish reason, and [DONE]
	Newline  string // line ending of made frames; "" is "\n"
	Comments bool   // a comment before every frame

	// Step is called before frame k (from 0) is sent; an error ends the answer.
	// See Gate.
	Step func(ctx context.Context, k int) error
	Pace time.Duration // wait before every frame
	// SplitEvery sends that many bytes a write and flush.
	SplitEvery int
	// Hang never sends headers. StallAt and CutAt go silent or drop the
	// connection before frame k; they count from 1, so that 0 is never.
	Hang           bool
	StallAt, CutAt int
	Gzip           bool // compress in spite of Accept-Encoding, a block a frame
}

const (
	answerID = "chatcmpl-mock"
	created  = 1_700_000_000 // no clock: the same request has the same answer
)

type chunk struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int     `json:"index"`
	Delta        *delta  `json:"delta,omitempty"`
	Message      *delta  `json:"message,omitempty"`
	FinishReason *string `json:"finish_reason"`
}

type delta struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning string  `json:"reasoning,omitempty"`
	ToolCalls []call  `json:"tool_calls,omitempty"`
}

type call struct {
	Index    *int     `json:"index,omitempty"`
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type usage struct {
	PromptTokens     int      `json:"prompt_tokens"`
	CompletionTokens int      `json:"completion_tokens"`
	TotalTokens      int      `json:"total_tokens"`
	PromptDetails    *details `json:"prompt_tokens_details,omitempty"`
	OutputDetails    *details `json:"completion_tokens_details,omitempty"`
}

type details struct {
	Cached    int `json:"cached_tokens,omitempty"`
	Reasoning int `json:"reasoning_tokens,omitempty"`
}

func (u Usage) wire() *usage {
	w := &usage{PromptTokens: u.Prompt, CompletionTokens: u.Completion, TotalTokens: u.Prompt + u.Completion}
	if u.Cached > 0 {
		w.PromptDetails = &details{Cached: u.Cached}
	}
	if u.Reasoning > 0 {
		w.OutputDetails = &details{Reasoning: u.Reasoning}
	}
	return w
}

func (a *Answer) finish() *string {
	f := a.Finish
	if f == "" {
		f = "stop"
		if len(a.Tools) > 0 {
			f = "tool_calls"
		}
	}
	return &f
}

// frames makes the events of a streamed answer.
func (s *Script) frames(req *Request) []string {
	if s.Frames != nil {
		return s.Frames
	}
	var out []string
	send := func(c chunk) {
		c.ID, c.Object, c.Created, c.Model = answerID, "chat.completion.chunk", created, req.Model
		out = append(out, s.event(encode(c)))
	}
	said := 0
	say := func(d delta) {
		c := chunk{Choices: []choice{{Delta: &d}}}
		if s.Usage == UsageEvery {
			c.Usage = Usage{Prompt: s.Answer.Usage.Prompt, Completion: said}.wire()
		}
		send(c)
	}
	empty := ""
	say(delta{Role: "assistant", Content: &empty})
	for _, r := range s.Answer.Reasoning {
		said++
		say(delta{Reasoning: r})
	}
	for _, t := range s.Answer.Text {
		said++
		say(delta{Content: &t})
	}
	for i, t := range s.Answer.Tools {
		say(delta{ToolCalls: []call{{Index: &i, ID: t.ID, Type: "function", Function: function{Name: t.Name}}}})
		for _, a := range t.Arguments {
			said++
			say(delta{ToolCalls: []call{{Index: &i, Function: function{Arguments: a}}}})
		}
	}
	if s.NoFinish {
		return out
	}
	last := chunk{Choices: []choice{{Delta: &delta{}, FinishReason: s.Answer.finish()}}}
	if s.Usage == UsageFinish || s.Usage == UsageEvery {
		last.Usage = s.Answer.Usage.wire()
	}
	send(last)
	if s.Usage == UsageAlways || s.Usage == UsageAsked && req.IncludeUsage {
		send(chunk{Choices: []choice{}, Usage: s.Answer.Usage.wire()})
	}
	if !s.NoDone {
		out = append(out, s.event("[DONE]"))
	}
	return out
}

// document makes the answer as one JSON document.
func (s *Script) document(req *Request) string {
	text := strings.Join(s.Answer.Text, "")
	m := delta{Role: "assistant", Content: &text, Reasoning: strings.Join(s.Answer.Reasoning, "")}
	for _, t := range s.Answer.Tools {
		m.ToolCalls = append(m.ToolCalls, call{ID: t.ID, Type: "function", Function: function{Name: t.Name, Arguments: strings.Join(t.Arguments, "")}})
	}
	c := chunk{ID: answerID, Object: "chat.completion", Created: created, Model: req.Model, Choices: []choice{{Message: &m, FinishReason: s.Answer.finish()}}}
	if s.Usage != UsageNever {
		c.Usage = s.Answer.Usage.wire()
	}
	return encode(c)
}

func (s *Script) event(data string) string {
	end := s.Newline
	if end == "" {
		end = "\n"
	}
	comment := ""
	if s.Comments {
		comment = ": MOCK PROCESSING" + end + end
	}
	return comment + "data: " + data + end + end
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // our own structs always encode
		panic(err)
	}
	return string(b)
}

// ErrorFrame is an event that carries an error object, as vendors send it inside
// a 200.
func ErrorFrame(code int, message string) string {
	return "data: " + errorBody(code, message) + "\n\n"
}

func errorBody(code int, message string) string {
	return encode(map[string]any{"error": map[string]any{"message": message, "type": fmt.Sprintf("http_%d", code), "code": code}})
}
