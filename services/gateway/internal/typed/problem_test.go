package typed

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"

	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// TestEveryCodeHasAReasonAndACode guards that no refusal of the table reaches a
// typed caller unclassified.
func TestEveryCodeHasAReasonAndACode(t *testing.T) {
	t.Parallel()
	for _, c := range []refusal.Code{
		refusal.MissingModel, refusal.NoMessages, refusal.StreamNotAllowed, refusal.MaxTokensRequired, refusal.InvalidJSON,
		refusal.InvalidParameter, refusal.UnsupportedParameter, refusal.LimitExceeded, refusal.Unauthorized, refusal.BudgetExhausted,
		refusal.ModelNotAllowed, refusal.Forbidden, refusal.AccountSuspended, refusal.AccountClosed, refusal.InvalidModel, refusal.NotFound,
		refusal.TenantNotProvisioned, refusal.RequestTimeout, refusal.PayloadTooLarge, refusal.RateLimited, refusal.ConcurrencyLimited,
		refusal.LedgerUnavailable, refusal.ReceiptUnavailable, refusal.PolicyStale, refusal.CapacityUnavailable, refusal.LedgerBacklog,
		refusal.QuotaUnavailable, refusal.ShuttingDown,
	} {
		ref := refusal.New(c, "x")
		if r := reason(ref); r == commonv1.Reason_REASON_INTERNAL || r == commonv1.Reason_REASON_UNSPECIFIED || code(ref) == connect.CodeInternal {
			t.Errorf("%s: %v %v", c, r, code(ref))
		}
	}
	for _, c := range []provider.Code{
		provider.AuthError, provider.Rejected, provider.RateLimited, provider.Unavailable, provider.Timeout, provider.ProtocolError,
	} {
		if r := reason(refusal.Upstream(string(c), "x", false, "")); r == commonv1.Reason_REASON_INTERNAL {
			t.Errorf("%s has no reason", c)
		}
	}
	tokens := refusal.New(refusal.RateLimited, "x")
	tokens.Limit = &refusal.RateLimit{Unit: "tokens"}
	if reason(tokens) != commonv1.Reason_REASON_TOKENS_PER_MINUTE || reason(refusal.New(refusal.Internal, "x")) != commonv1.Reason_REASON_INTERNAL ||
		reason(notBuilt()) != commonv1.Reason_REASON_UNSUPPORTED || code(notBuilt()) != connect.CodeUnimplemented {
		t.Error("a special case is lost")
	}
}

// TestErrorsKeepTheAnswersHeaders guards that metadata has what HTTP answers say.
func TestErrorsKeepTheAnswersHeaders(t *testing.T) {
	t.Parallel()
	ref := refusal.Upstream("upstream_rate_limited", "the provider", true, "7")
	err := toWireRefusal(ref, http.Header{"X-Tenant": {"acme"}})
	if m := err.Meta(); m.Get("X-Tenant") != "acme" || m.Get(headerCode) != "upstream_rate_limited" || m.Get(headerRetryable) != "true" || m.Get(headerRetry) != "7" {
		t.Errorf("%v", m)
	}
}
