package mockprovider

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	paceDefault = 100 * time.Millisecond
	hugeBytes   = 1 << 20
	// Secret is what scenarios that leak put into their errors: it must be
	// nowhere in what a caller or a log sees.
	Secret = "sk-or-v1-0123456789abcdef0123456789abcdef"
)

// Scenarios lists the names that a request can choose by its model (behind an
// optional "mock/"), the header X-Mock-Scenario or the body field mock_scenario.
// echo-N says N words; slow-N waits N milliseconds before each; status-N answers
// with that HTTP status.
func Scenarios() []string {
	return []string{
		"comments", "crlf", "cut", "document", "echo", "echo-N", "empty", "error-first", "error-mid", "gzip", "hang",
		"huge", "no-done", "no-finish", "no-usage", "reasoning", "refuse-usage", "slow", "slow-N", "split", "stall",
		"status-N", "tools", "usage-every", "usage-finish",
	}
}

// scenario makes a named script for a request.
func scenario(name string, req *Request) (Script, bool) {
	name = strings.TrimPrefix(name, "mock/")
	s := Script{Answer: echo(req, -1)}
	base, arg, n := numbered(name)
	switch base {
	case "echo":
		if arg {
			s.Answer = echo(req, n)
		}
	case "slow":
		s.Pace = paceDefault
		if arg {
			s.Pace = time.Duration(n) * time.Millisecond
		}
	case "status":
		return status(n, req), arg && n >= 300 && n < 600
	default:
		return s, !arg && s.named(name, req)
	}
	return s, true
}

// numbered splits a trailing number off a name.
func numbered(name string) (base string, arg bool, n int) {
	const most = 100_000
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return name, false, 0
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n < 0 || n > most {
		return name, false, 0
	}
	return name[:i], true, n
}

func (s *Script) named(name string, req *Request) bool {
	middle := 1 + len(s.Answer.Text)/2 // the role frame, and half of the text
	switch name {
	case "no-usage":
		s.Usage = UsageNever
	case "usage-finish":
		s.Usage = UsageFinish
	case "usage-every":
		s.Usage = UsageEvery
	case "no-done":
		s.NoDone = true
	case "no-finish":
		s.NoFinish = true
	case "crlf":
		s.Newline = "\r\n"
	case "comments":
		s.Comments = true
	case "document":
		s.Document = true
	case "gzip":
		s.Gzip = true
	case "split":
		s.SplitEvery = 3
	case "hang":
		s.Hang = true
	case "stall":
		s.StallAt = middle + 1
	case "cut":
		s.CutAt = middle + 1
	case "empty":
		s.Frames = []string{s.event("[DONE]")}
	case "error-first":
		s.Frames = []string{ErrorFrame(http.StatusServiceUnavailable, "overloaded, account acct_4711, key "+Secret)}
	case "error-mid":
		s.Frames = append(slices.Clone(s.frames(req)[:middle]), ErrorFrame(http.StatusBadGateway, "backend lost, key "+Secret))
	case "huge":
		s.Answer.Text = []string{strings.Repeat("x", hugeBytes)}
		s.Answer.Usage.Completion = 1
	case "reasoning":
		s.Answer.Reasoning = []string{"Let", " me", " think."}
		s.Answer.Usage.Reasoning = len(s.Answer.Reasoning)
		s.Answer.Usage.Completion += len(s.Answer.Reasoning)
	case "tools":
		s.Answer.Text = nil
		s.Answer.Tools = []Tool{
			{ID: "call_a", Name: "get_weather", Arguments: []string{`{"city":`, `"Oslo"}`}},
			{ID: "call_b", Name: "get_time", Arguments: []string{`{}`}},
		}
		s.Answer.Usage.Completion = 3
	case "refuse-usage":
		if req.IncludeUsage {
			*s = Script{Status: http.StatusBadRequest, Body: errorBody(http.StatusBadRequest, "unknown field stream_options")}
		}
	default:
		return false
	}
	return true
}

// status answers with an HTTP status and a body that leaks what it can, the
// caller's own credential too.
func status(code int, req *Request) Script {
	leak := fmt.Sprintf("refused for account acct_4711 with key %s, authorization %q", Secret, req.Header.Get("Authorization"))
	s := Script{Status: code, Body: errorBody(code, leak), Header: http.Header{}}
	switch {
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		s.Header.Set("Retry-After", "7")
	case code < 400:
		s.Header.Set("Location", "/v1/models")
	}
	return s
}

// echo answers with the words of the last user message, as many as the output
// cap allows; n of them, repeating, when n is not negative. A word is a token.
func echo(req *Request, n int) Answer {
	words := strings.Fields(req.LastUser)
	if n < 0 {
		n = len(words)
	}
	if len(words) == 0 {
		words = []string{"nothing"}
	}
	a := Answer{}
	if req.MaxTokens > 0 && n > req.MaxTokens {
		n, a.Finish = req.MaxTokens, "length"
	}
	for i := range n {
		w := words[i%len(words)]
		if i > 0 {
			w = " " + w
		}
		a.Text = append(a.Text, w)
	}
	a.Usage = Usage{Prompt: req.PromptTokens, Completion: n}
	return a
}

// unknown is the answer for a model that the mock does not have.
func unknown(model string) Script {
	return Script{Status: http.StatusNotFound, Body: errorBody(http.StatusNotFound, fmt.Sprintf("the model %q does not exist", model))}
}
