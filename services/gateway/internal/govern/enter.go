package govern

import (
	"context"
	"errors"
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
	// Tokens are taken from Authorization, too; nil: only keys are.
	Tokens *auth.Tokens
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

// KeyName is the key's id as people read it: of a token, its jti or "jwt".
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
	secret, tokens, ref := d.credential(r.Header)
	if ref != nil {
		return nil, ref
	}
	who, err := d.verify(r.Context(), tokens, secret, now)
	if err != nil {
		kind := fault.KindOf(err)
		if kind == fault.Unauthenticated {
			ref := unauthorized()
			if e, ok := errors.AsType[*fault.Error](err); ok {
				ref.Cause = e.Cause // why a token was refused, in fixed words; keys have none
			}
			return nil, ref
		}
		if kind == fault.Forbidden {
			return nil, refusal.Because(refusal.Forbidden, "the token lacks a scope that every token must have on this gateway", err)
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
	if who.Permissions&scopes != scopes { // Begin asked the snapshot: what holds is both
		return c, denied(admission.Denial{Reason: admission.PermissionDenied})
	}
	if err != nil {
		return c, stale(err)
	}
	return c, nil
}

func (d *Door) verify(ctx context.Context, tokens *auth.Tokens, secret string, now time.Time) (*auth.Identity, error) {
	keys := d.Runtime.Registry()
	s, remembers := ctx.Value(sessionKey{}).(*auth.Session)
	switch {
	case !remembers:
		return keys.VerifyBearer(tokens, secret, now)
	case tokens == nil:
		return s.Verify(keys, secret, now)
	}
	return s.VerifyBearer(keys, tokens, secret, now)
}

// credential finds the key or token that was presented, and by what a token may
// be verified there. A key header that is there is final, whatever else was
// sent, and holds no token.
func (d *Door) credential(h http.Header) (string, *auth.Tokens, *refusal.Refusal) {
	if given := h.Values(d.KeyHeader); len(given) > 0 {
		if len(given) > 1 {
			return "", nil, unauthorized()
		}
		return given[0], nil, nil
	}
	const scheme = "bearer "
	given := h.Values("Authorization")
	if d.AcceptBearer && len(given) == 1 && len(given[0]) > len(scheme) && strings.EqualFold(given[0][:len(scheme)], scheme) {
		return given[0][len(scheme):], d.Tokens, nil
	}
	return "", nil, unauthorized()
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
	case admission.LeaseExpired, admission.LeaseExhausted:
		if d.Level == admission.LevelWorkload { // the request's own grant
			return unused(d)
		}
		return refusal.New(refusal.QuotaUnavailable, quotaUnavailable).After(quotaRetry)
	case admission.FundingExpiredAtStart:
		return unused(d)
	case admission.LeaseUnavailable:
		return refusal.New(refusal.QuotaUnavailable, quotaUnavailable).After(quotaRetry)
	case admission.AccountingBackpressure:
		return refusal.Because(refusal.LedgerBacklog, "too many finished requests wait to be written; retry shortly", &admission.Refused{Denial: d}).After(time.Second)
	case admission.UnpricedOperation, admission.RateLimited, admission.RequestRateLimited, admission.ConcurrencyLimited,
		admission.UnpriceableUnderLimits, admission.OverageCapExhausted,
		admission.OverageCapTemporarilyExhausted, admission.OverageCommitInProgress, admission.EmptyWorkload,
		admission.BalanceExhausted, admission.BalanceInsufficient, admission.ItemRateLimited:
	}
	// The others are those of policies that this gateway does not publish, or
	// have been dealt with by leaseDenied.
	return refusal.Because(refusal.Internal, "the request failed inside the gateway", &admission.Refused{Denial: d})
}

// unused says that what was granted for the request lapsed before it ran.
func unused(d admission.Denial) *refusal.Refusal {
	return refusal.Because(refusal.LedgerUnavailable, "what was reserved could not be used in time; nothing is charged; retry", &admission.Refused{Denial: d}).After(time.Second)
}
