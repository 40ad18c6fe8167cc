package provider

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/sse"
)

var (
	errSilent       = errors.New("no byte from the provider within the read timeout")
	errTooManyCalls = errors.New("more tool calls than an answer may have")
	errTooLarge     = errors.New("the answer is larger than the limit")
	errEncoding     = errors.New("the provider compressed in an unknown way")
	errEmpty        = errors.New("the answer says nothing")
	errCut          = errors.New("the answer ended before its end")
)

// byStatus classifies an HTTP status that is not 200.
func byStatus(status int) (code Code, retryable bool) {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return AuthError, false
	case status == http.StatusTooManyRequests:
		return RateLimited, true
	case status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout:
		return Timeout, true
	case status >= 500:
		return Unavailable, true
	case status >= 400:
		return Rejected, false
	}
	// Redirects are not followed; another 2xx is not an answer.
	return ProtocolError, false
}

// refusal is the error of an answer that is not 200.
func refusal(resp *http.Response, body, key string) *Error {
	code, retryable := byStatus(resp.StatusCode)
	return &Error{
		Code: code, Status: resp.StatusCode, Retryable: retryable,
		RetryAfter: retryAfter(resp.Header.Get("Retry-After")),
		detail:     redact(body, key),
	}
}

// retryAfter keeps a well-formed Retry-After and nothing else.
func retryAfter(v string) string {
	const digitsMax = 9
	v = strings.TrimSpace(v)
	if n, err := strconv.ParseUint(v, 10, 64); err == nil && len(v) <= digitsMax {
		return strconv.FormatUint(n, 10)
	}
	if t, err := http.ParseTime(v); err == nil {
		return t.UTC().Format(http.TimeFormat)
	}
	return ""
}

// inBand is the error of an error object in a 200. Vendors put an HTTP status,
// a type or a code there.
func inBand(raw json.RawMessage, phase Phase, key string) *Error {
	e := &Error{Code: Unavailable, Retryable: true, Phase: phase, detail: redact(string(raw), key)}
	o := objectOf(raw)
	if inner := objectOf(o["error"]); inner != nil {
		o = inner
	}
	for _, name := range []string{"code", "status", "status_code"} {
		n, ok := intOf(o[name])
		if !ok {
			n, ok = intOf(json.RawMessage(textOf(o[name])))
		}
		if ok && n >= 400 && n < 600 {
			e.Status = n
			e.Code, e.Retryable = byStatus(n)
			return e
		}
	}
	word := strings.ToLower(textOf(o["type"]) + " " + textOf(o["code"]))
	switch {
	case strings.Contains(word, "rate_limit") || strings.Contains(word, "too_many"):
		e.Code = RateLimited
	case strings.Contains(word, "auth") || strings.Contains(word, "permission") || strings.Contains(word, "api_key"):
		e.Code, e.Retryable = AuthError, false
	case strings.Contains(word, "timeout"):
		e.Code = Timeout
	case strings.Contains(word, "invalid") || strings.Contains(word, "bad_request") || strings.Contains(word, "badrequest") || strings.Contains(word, "not_found"):
		e.Code, e.Retryable = Rejected, false
	}
	return e
}

// broken classifies what went wrong with the connection or the reading of it.
// An ended context of the caller is returned as it is: nobody is left to tell.
func broken(ctx context.Context, err error, phase Phase, key string) error {
	if err == nil || errors.Is(err, io.EOF) && phase == Refused {
		err = io.ErrUnexpectedEOF
	}
	e := &Error{Code: Unavailable, Phase: phase, Retryable: true, cause: err, detail: redact(err.Error(), key)}
	var timeout net.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		e.Code, e.cause, e.detail = Timeout, errSilent, errSilent.Error()
	case ctx.Err() != nil:
		return fmt.Errorf("call the provider: %w", ctx.Err())
	case errors.As(err, &certificate):
		e.Retryable = false
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Code = Timeout
	case errors.Is(err, sse.ErrTooLarge), errors.Is(err, errTooLarge), errors.Is(err, errTooManyCalls), errors.Is(err, errEncoding), errors.Is(err, errEmpty):
		e.Code, e.Retryable = ProtocolError, false
	case errors.Is(err, errCut):
		e.Code, e.Incomplete = ProtocolError, true
	case errors.Is(err, io.ErrUnexpectedEOF) && phase != Refused:
		e.Incomplete = true
	}
	return e
}

// malformed is the error of a frame or document that cannot be read.
func malformed(err error, phase Phase) *Error {
	// The text of a JSON error quotes at most a character of the answer.
	return &Error{Code: ProtocolError, Phase: phase, cause: err, detail: redact(err.Error(), "")}
}

// A watch ends a request's context when the provider is silent for too long. It
// runs only while somebody waits for the provider, so a slow client costs the
// provider nothing.
type watch struct {
	timer *time.Timer
	limit time.Duration
}

// newWatch makes a stopped watch over a context that it can cancel.
func newWatch(ctx context.Context, limit time.Duration) (context.Context, context.CancelCauseFunc, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{timer: time.AfterFunc(limit, func() { cancel(errSilent) }), limit: limit}
	w.timer.Stop()
	return ctx, cancel, w
}

func (w *watch) start()                  { w.timer.Reset(w.limit) }
func (w *watch) stop()                   { w.timer.Stop() }
func (w *watch) tighten(d time.Duration) { w.limit = min(w.limit, d) }

// A watched body gives each Read the watch's time. Any byte renews it.
type watched struct {
	io.ReadCloser
	watch *watch
}

func (b watched) Read(p []byte) (int, error) {
	b.watch.start()
	n, err := b.ReadCloser.Read(p)
	b.watch.stop()
	return n, err
}
