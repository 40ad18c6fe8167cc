package exchange

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/idempotency"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/metrics"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// headerKey reads the Idempotency-Key header; "" without one.
func headerKey(h http.Header) (string, *refusal.Refusal) {
	given := h.Values(headerIdempotency)
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || !idempotency.ValidKey(given[0]) {
		return "", refusal.New(refusal.InvalidParameter, headerIdempotency+": must be one header of 1 to 255 visible ASCII characters")
	}
	return given[0], nil
}

// key settles which key the request came with, "" for none, by its header and
// its message.
func (x *Exchange) key(header, message string) (string, *refusal.Refusal) {
	switch {
	case message == "":
	case header != "" && header != message:
		return "", refusal.New(refusal.InvalidParameter, "idempotency_key: must be that of the "+headerIdempotency+" header when both are sent")
	default:
		header = message // the message's own rules have bounded it
	}
	if header != "" && x.caller.Policy.Leased() {
		return "", refusal.New(refusal.UnsupportedParameter, headerIdempotency+": a tenant with leased funding has no idempotency keys; leave it out")
	}
	if header == "" && x.caller.Policy.RequireIdempotencyKey {
		return "", refusal.New(refusal.KeyRequired, headerIdempotency+": is required for this tenant")
	}
	return header, nil
}

// claim is the ledger's claim of a key; nil for none.
func (x *Exchange) claim(key string, asked *Asked) *ledger.Idempotency {
	if key == "" {
		return nil
	}
	framing := "normalized"
	if asked.Chat.Passthrough {
		framing = "passthrough"
	}
	return x.c.Idempotency.Claim(idempotency.Request{
		Account: x.caller.Account(), Key: key, Format: x.face.Format(), Framing: framing, Body: asked.Body,
	})
}

// kept is the answer of the request that first came with the key.
type kept struct {
	idempotency.Answer
	request string
}

// open gives the answer to repeat, or says why there is none. What can't be
// opened is never served.
func (x *Exchange) open(r *ledger.Replay) (*kept, *refusal.Refusal) {
	if len(r.SealedAnswer) == 0 {
		return nil, govern.Duplicate(r)
	}
	a, err := x.c.Idempotency.Open(x.caller.Account(), r.Request, r.SealedAnswer)
	if err != nil {
		x.c.Metrics.Unopened(x.ctx)
		x.c.Log.LogAttrs(x.ctx, slog.LevelWarn, "a kept answer does not open; its repeat is refused", slog.String("request_id", x.id.String()),
			slog.String("original_request_id", r.Request.String()), slog.String("tenant", x.caller.Tenant()), slog.Any("error", err))
		return nil, govern.Duplicate(r)
	}
	return &kept{Answer: a, request: r.Request.String()}, nil
}

// replay gives the kept answer again: nothing is executed, reserved, billed or
// proven anew.
func (x *Exchange) replay() {
	h := x.face.Header()
	x.always(h)
	for _, own := range x.kept.Headers {
		h.Set(own.Name, own.Value)
	}
	h.Set(headerReplayed, "true")
	refusal.Original{Request: x.kept.request}.SetHeaders(h)
	if x.clientID == "" {
		h.Set(HeaderRequestID, x.kept.request)
	}
	x.answered = true
	x.span.Replayed(x.kept.request)
	x.c.Metrics.Replayed(x.ctx)
	if _, err := x.face.Answer(x.kept.Body, true); err != nil {
		x.c.Log.LogAttrs(x.ctx, slog.LevelDebug, "caller left before the kept answer", slog.String("request_id", x.id.String()))
	}
	x.c.Log.LogAttrs(x.ctx, slog.LevelInfo, "chat replayed", slog.String("request_id", x.id.String()), slog.String("original_request_id", x.kept.request),
		slog.String("tenant", x.caller.Tenant()), slog.String("key_id", x.caller.KeyName()), slog.String("endpoint", x.endpoint.String()))
}

// seal closes an answer up for replays; nil when it can't be kept.
func (x *Exchange) seal(doc []byte) []byte {
	sealed, err := x.c.Idempotency.Seal(x.caller.Account(), x.id, idempotency.Answer{Headers: x.lasting(), Body: doc})
	switch {
	case err == nil:
		x.c.Metrics.Kept(x.ctx, metrics.FateKept)
	case errors.Is(err, idempotency.ErrNoKeys):
		x.c.Metrics.Kept(x.ctx, metrics.FateNoKeys)
	default:
		x.c.Metrics.Kept(x.ctx, metrics.FateTooLarge)
	}
	return sealed
}
