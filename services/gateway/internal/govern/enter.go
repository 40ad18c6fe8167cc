package govern

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/runtime"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// A Door is where requests come in: it knows who they are and admits them.
type Door struct {
	Engine  *admission.Engine
	Runtime *runtime.Runtime
	Gate    admission.Gate
	// KeyHeader carries an API key; with AcceptBearer so does Authorization.
	KeyHeader    string
	AcceptBearer bool
}

// A Caller is who sent a request, proven, with the policy that holds for it.
type Caller struct {
	Identity *auth.Identity
	Request  admission.Request
	// Policy is nil only beside a refusal.
	Policy *policy.Document
}

// Tenant is the account's slug; "" when it could not be read.
func (c *Caller) Tenant() string {
	if c.Policy == nil {
		return ""
	}
	return c.Policy.Tenant
}

// Account is the account that pays.
func (c *Caller) Account() ident.ID { return c.Identity.Account }

// KeyName is the key's id as people read it.
func (c *Caller) KeyName() string { return c.Identity.KeyName }

type sessionKey struct{}

// WithSession gives the context of a connection a memory for the credential
// that it verified last.
func WithSession(ctx context.Context) context.Context {
	return context.WithValue(ctx, sessionKey{}, &auth.Session{})
}

// Enter authenticates the request and checks that its key may use the route.
// Beside a refusal the caller is given when it is known, so that the refusal
// can be attributed; its Policy may then be nil.
func (d *Door) Enter(r *http.Request, scopes uint64, now time.Time) (*Caller, *refusal.Refusal) {
	secret, ref := d.credential(r.Header)
	if ref != nil {
		return nil, ref
	}
	who, err := d.verify(r.Context(), secret, now)
	if err != nil {
		if fault.KindOf(err) == fault.Unauthenticated {
			return nil, unauthorized()
		}
		return nil, stale(err)
	}
	c := &Caller{Identity: who}
	var denial admission.Denial
	c.Request, denial = d.Engine.Begin(admission.Principal(who.Principal), admission.PermissionSet(scopes), now)
	if !c.Request.Known() {
		return nil, unauthorized()
	}
	doc, err := d.Runtime.Policy(c.Request.PolicyRevision())
	if err == nil {
		c.Policy = doc
	}
	if denial.Denied() {
		return c, denied(denial)
	}
	if err != nil {
		return c, stale(err)
	}
	return c, nil
}

func (d *Door) verify(ctx context.Context, secret string, now time.Time) (*auth.Identity, error) {
	if s, ok := ctx.Value(sessionKey{}).(*auth.Session); ok {
		return s.Verify(d.Runtime.Registry(), secret, now)
	}
	return d.Runtime.Registry().Verify(secret, now)
}

// credential finds the key that was presented. A key header that is there is
// final, whatever else was sent.
func (d *Door) credential(h http.Header) (string, *refusal.Refusal) {
	if given := h.Values(d.KeyHeader); len(given) > 0 {
		if len(given) > 1 {
			return "", unauthorized()
		}
		return given[0], nil
	}
	const scheme = "bearer "
	given := h.Values("Authorization")
	if d.AcceptBearer && len(given) == 1 && len(given[0]) > len(scheme) && strings.EqualFold(given[0][:len(scheme)], scheme) {
		return given[0][len(scheme):], nil
	}
	return "", unauthorized()
}

// unauthorized says the same for a missing and for a wrong key.
func unauthorized() *refusal.Refusal {
	return refusal.New(refusal.Unauthorized, "the API key is missing or invalid")
}

func stale(cause error) *refusal.Refusal {
	return refusal.Because(refusal.PolicyStale, "the gateway's copy of keys and policies is out of date; retry shortly", cause).After(time.Second)
}

// denied turns the engine's refusal into the contract's.
func denied(d admission.Denial) *refusal.Refusal {
	switch d.Reason {
	case admission.AccountSuspended:
		return refusal.New(refusal.AccountSuspended, "the account is suspended")
	case admission.AccountClosed:
		return refusal.New(refusal.AccountClosed, "the account is closed")
	case admission.PermissionDenied, admission.ClassNotPermitted:
		return refusal.New(refusal.Forbidden, "the key's scopes do not permit this route")
	case admission.SnapshotExpired:
		return stale(&admission.Refused{Denial: d})
	case admission.UnknownPrincipal:
		return unauthorized()
	case admission.CapacityUnavailable:
		return refusal.New(refusal.CapacityUnavailable, "this gateway runs as many requests as it may; retry shortly").After(time.Second)
	case admission.TooManyItems:
		return refusal.New(refusal.LimitExceeded, "the prompt and max_tokens together exceed the tokens allowed in one request")
	case admission.CostOverflow:
		return refusal.New(refusal.InvalidParameter, "max_tokens: the request's worst-case cost is out of range")
	case admission.LeaseExpired, admission.LeaseExhausted, admission.FundingExpiredAtStart:
		return refusal.Because(refusal.LedgerUnavailable, "the reservation could not be used in time; nothing is charged; retry", &admission.Refused{Denial: d}).After(time.Second)
	case admission.UnpricedOperation, admission.RateLimited, admission.RequestRateLimited, admission.ConcurrencyLimited,
		admission.UnpriceableUnderLimits, admission.LeaseUnavailable, admission.OverageCapExhausted, admission.AccountingBackpressure,
		admission.OverageCapTemporarilyExhausted, admission.OverageCommitInProgress, admission.EmptyWorkload,
		admission.BalanceExhausted, admission.BalanceInsufficient, admission.ItemRateLimited:
	}
	// The others belong to leased traffic, which this gateway does not carry.
	return refusal.Because(refusal.Internal, "the request failed inside the gateway", &admission.Refused{Denial: d})
}
