package exchange

import (
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// unleased refuses a header that a tenant with leased funding can't have: a key
// is claimed in the ledger, which isn't asked for its requests.
func unleased(p *policy.Document, h http.Header) *refusal.Refusal {
	if _, sent := h[headerIdempotency]; sent && p.Leased() {
		return refusal.New(refusal.UnsupportedParameter, headerIdempotency+": a tenant with leased funding has no idempotency keys; leave it out")
	}
	return nil
}
