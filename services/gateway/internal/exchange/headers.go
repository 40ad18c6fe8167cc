package exchange

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/idempotency"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// The headers of answers, in net/http's spelling.
const (
	HeaderRequestID     = "X-Request-Id"
	headerModel         = "X-Model"
	headerProvider      = "X-Provider"
	headerUpstreamModel = "X-Upstream-Model"
	headerVersion       = "X-Gateway-Version"
	headerTenant        = "X-Tenant"
	headerReserved      = "X-Reserved-Nano-Usd"
	HeaderFraming       = "X-Gateway-Framing"
	headerReceiptID     = "X-Receipt-Id"
	headerReceiptSalt   = "X-Receipt-Salt"
	headerIdempotency   = "Idempotency-Key"
	headerReplayed      = "Idempotent-Replayed"
	headerHold          = "Hold-Id"
)

const clientIDMax = 128

// clientRequestID gives the caller's own id when it may be echoed: 1 to 128
// visible ASCII characters. It is echoed and logged, and means nothing else.
func clientRequestID(r *http.Request) string {
	id := r.Header.Get(HeaderRequestID)
	if len(id) > clientIDMax {
		return ""
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return ""
		}
	}
	return id
}

// Identify mints the id of r and sets the id that is shown.
func (c *Core) Identify(h http.Header, r *http.Request) (id ident.ID, client string) {
	id = ident.NewAt(c.Clock.Now())
	client = clientRequestID(r)
	shown := client
	if shown == "" {
		shown = id.String()
	}
	h.Set(HeaderRequestID, shown)
	return id, client
}

// unsupportedHeader refuses a header whose meaning is not built: ignoring it
// would promise what isn't kept.
func unsupportedHeader(h http.Header) *refusal.Refusal {
	if _, sent := h[headerHold]; sent {
		return refusal.New(refusal.UnsupportedParameter, headerHold+": this header is not supported yet")
	}
	return nil
}

// headers sets what every answer to an admitted request says.
func (x *Exchange) headers() {
	h := x.face.Header()
	x.always(h)
	for _, own := range x.lasting() {
		h.Set(own.Name, own.Value)
	}
	grant := x.tab.Grant()
	h.Set(headerReserved, strconv.FormatInt(grant.Granted, 10))
	limitHeaders(h, grant.Left, x.c.Clock.Now())
}

// always sets what is the same for an answer and its replays.
func (x *Exchange) always(h http.Header) {
	h.Set(headerVersion, "v1")
	h.Set(headerTenant, x.caller.Tenant())
	h.Set("Cache-Control", "no-cache, no-store, no-transform")
}

// lasting are the headers that belong to the answer rather than to the request,
// and are given with it again.
func (x *Exchange) lasting() []idempotency.Header {
	p := x.prepared
	own := []idempotency.Header{
		{Name: headerModel, Value: p.Model.ID},
		{Name: headerProvider, Value: p.Model.Route.Provider},
		{Name: headerUpstreamModel, Value: p.Call.Route.UpstreamModel},
	}
	if x.allowed != nil {
		own = append(own, idempotency.Header{Name: headerReceiptID, Value: x.allowed.ID()},
			idempotency.Header{Name: headerReceiptSalt, Value: x.allowed.Salt().Hex()})
	}
	return own
}

// limitHeaders tell what the account's limits leave after a grant. Limits that
// aren't set have no header.
func limitHeaders(h http.Header, left ledger.LimitsLeft, now time.Time) {
	for _, l := range []refusal.RateLimit{
		{Unit: "requests", Limit: left.RequestsLimit, Remaining: left.Requests},
		{Unit: "tokens", Limit: left.TokensLimit, Remaining: left.Tokens},
	} {
		if l.Limit < 0 || l.Remaining < 0 {
			continue
		}
		l.Reset = left.MinuteEnds.Sub(now)
		l.SetHeaders(h)
	}
}
