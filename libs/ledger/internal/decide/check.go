package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Bounds of what a caller may send.
const (
	// MaxTTL bounds how long a reservation lives unrenewed.
	MaxTTL      = time.Hour
	maxSlug     = 64
	maxName     = 128
	maxEndpoint = 32
	maxModel    = 256
	maxReason   = 1024
)

func invalid(reason, field, rule string) error {
	return fault.New(fault.Invalid, reason, field+": "+rule)
}

// CheckReserve parses a Reserve at the border; a zero TTL becomes DefaultTTL.
func CheckReserve(r *ledger.Reserve) error {
	switch {
	case r.Request.IsZero():
		return invalid("REQUEST_ID_MISSING", "request", "an id is required")
	case r.Holder.IsZero():
		return invalid("HOLDER_ID_MISSING", "holder", "an id is required")
	case r.Units < 0:
		return invalid("UNITS_INVALID", "units", "at least 0")
	case r.PromptUnits < 0 || r.PromptUnits > r.Units:
		return invalid("UNITS_INVALID", "prompt_units", "between 0 and units")
	case r.Tokens < 0:
		return invalid("TOKENS_INVALID", "tokens", "at least 0")
	case r.PromptTokens < 0 || r.PromptTokens > r.Tokens:
		return invalid("TOKENS_INVALID", "prompt_tokens", "between 0 and tokens")
	case len(r.Endpoint) > maxEndpoint || !utf8.ValidString(r.Endpoint):
		return invalid("ENDPOINT_INVALID", "endpoint", fmt.Sprintf("at most %d bytes of UTF-8", maxEndpoint))
	case len(r.Model) > maxModel || !utf8.ValidString(r.Model):
		return invalid("MODEL_INVALID", "model", fmt.Sprintf("at most %d bytes of UTF-8", maxModel))
	}
	if err := checkIdempotency(r); err != nil {
		return err
	}
	return checkTTL(&r.TTL)
}

// checkIdempotency also makes the claim a copy of its own: a caller that gave up
// may reuse its slice while the lane still reads it.
func checkIdempotency(r *ledger.Reserve) error {
	if r.Idempotency == nil {
		return nil
	}
	i := *r.Idempotency
	switch {
	case !formatValid(i.Format):
		return invalid("IDEMPOTENCY_INVALID", "idempotency.format", fmt.Sprintf("1 to %d of a-z, 0-9, '/', '-', '_', '.'", ledger.MaxFormat))
	case len(i.Fingerprints) == 0 || len(i.Fingerprints) > ledger.MaxFingerprints:
		return invalid("IDEMPOTENCY_INVALID", "idempotency.fingerprints", fmt.Sprintf("1 to %d", ledger.MaxFingerprints))
	}
	i.Fingerprints = slices.Clone(i.Fingerprints)
	r.Idempotency = &i
	return nil
}

func formatValid(format string) bool {
	for i := range len(format) {
		c := format[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '/' && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return format != "" && len(format) <= ledger.MaxFormat
}

func checkTTL(ttl *time.Duration) error {
	if *ttl == 0 {
		*ttl = ledger.DefaultTTL
	}
	if *ttl < 0 || *ttl > MaxTTL {
		return invalid("TTL_INVALID", "ttl", "longer than 0 and at most 1 hour")
	}
	return nil
}

// CheckRenewal parses a Renewal at the border; a zero TTL becomes DefaultTTL.
func CheckRenewal(r *ledger.Renewal) error {
	if r.Holder.IsZero() {
		return invalid("HOLDER_ID_MISSING", "holder", "an id is required")
	}
	if len(r.Reservations) > ledger.MaxBatch {
		return invalid("BATCH_TOO_LARGE", "reservations", fmt.Sprintf("at most %d", ledger.MaxBatch))
	}
	return checkTTL(&r.TTL)
}

// CheckCloses parses a batch of closes at the border.
func CheckCloses(closes []ledger.Close) error {
	if len(closes) > ledger.MaxBatch {
		return invalid("BATCH_TOO_LARGE", "closes", fmt.Sprintf("at most %d", ledger.MaxBatch))
	}
	answers := 0
	for i := range closes {
		if err := checkClose(&closes[i]); err != nil {
			return err
		}
		answers += len(closes[i].SealedAnswer)
	}
	if answers > ledger.MaxBatchAnswers {
		return invalid("BATCH_TOO_LARGE", "closes.sealed_answer", fmt.Sprintf("at most %d bytes together", ledger.MaxBatchAnswers))
	}
	return nil
}

func checkClose(c *ledger.Close) error {
	if c.Request.IsZero() {
		return invalid("REQUEST_ID_MISSING", "request", "an id is required")
	}
	if c.Fence < 0 {
		return invalid("FENCE_INVALID", "fence", "at least 0, where 0 means unknown")
	}
	switch c.Outcome {
	case ledger.Settled:
		if c.Units < 0 {
			return invalid("UNITS_INVALID", "units", "at least 0")
		}
	case ledger.PromptOnly, ledger.Full, ledger.Released:
		if c.Units != 0 {
			return invalid("UNITS_INVALID", "units", "only outcome settled states units")
		}
	case ledger.Swept:
		return invalid("OUTCOME_INVALID", "outcome", "swept is the ledger's own")
	default:
		return invalid("OUTCOME_INVALID", "outcome", "one of settled, prompt_only, full, released")
	}
	switch {
	case len(c.SealedAnswer) > ledger.MaxSealedAnswer:
		return invalid("ANSWER_INVALID", "sealed_answer", fmt.Sprintf("at most %d bytes", ledger.MaxSealedAnswer))
	case len(c.SealedAnswer) > 0 && c.Outcome == ledger.Released:
		return invalid("ANSWER_INVALID", "sealed_answer", "a released request has no answer to replay")
	}
	d := &c.Dimensions
	if d.PromptTokens < -1 || d.CachedTokens < -1 || d.CompletionTokens < -1 || d.ReasoningTokens < -1 {
		return invalid("TOKENS_INVALID", "dimensions", "token counts are at least 0, or -1 for not reported")
	}
	if len(d.Model) > maxModel || !utf8.ValidString(d.Model) {
		return invalid("MODEL_INVALID", "dimensions.model", fmt.Sprintf("at most %d bytes of UTF-8", maxModel))
	}
	return nil
}

// CheckNewAccount parses a NewAccount and fills its defaults, the ID excepted.
func CheckNewAccount(n *ledger.NewAccount) error {
	if n.Status == "" {
		n.Status = ledger.StatusActive
	}
	if n.Class == "" {
		n.Class = ledger.Assured
	}
	if n.Origin == "" {
		n.Origin = ledger.ByOperator
	}
	switch {
	case !slugValid(n.Slug):
		return invalid("SLUG_INVALID", "slug", "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter or digit")
	case len(n.DisplayName) > maxName || !utf8.ValidString(n.DisplayName):
		return invalid("DISPLAY_NAME_INVALID", "display_name", fmt.Sprintf("at most %d bytes of UTF-8", maxName))
	case !n.Status.Valid():
		return invalid("STATUS_INVALID", "status", "one of active, suspended, closed")
	case !AuthorityValid(n.Origin):
		return invalid("ORIGIN_INVALID", "origin", "one of operator, provisioner, config")
	case n.Class != ledger.Assured && n.Class != ledger.BestEffort:
		return invalid("CLASS_INVALID", "capacity_class", "one of assured, best_effort")
	case n.Deposit < 0:
		return invalid("UNITS_INVALID", "deposit", "at least 0")
	}
	if n.Budget != nil {
		if err := CheckBudget(n.Budget); err != nil {
			return err
		}
	}
	return CheckLimits(n.Limits)
}

func slugValid(s string) bool {
	if s == "" || len(s) > maxSlug {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') {
			continue
		}
		if i == 0 || (c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return true
}

// AuthorityValid says whether a is one of the declared authorities.
func AuthorityValid(a ledger.Authority) bool {
	return a == ledger.ByOperator || a == ledger.ByProvisioner || a == ledger.ByConfig
}

// CheckActor parses who acts.
func CheckActor(by ledger.Actor) error {
	if by.Name == "" || len(by.Name) > maxName || !utf8.ValidString(by.Name) {
		return invalid("ACTOR_INVALID", "actor", fmt.Sprintf("1 to %d bytes of UTF-8", maxName))
	}
	if !AuthorityValid(by.Authority) {
		return invalid("ACTOR_INVALID", "authority", "one of operator, provisioner, config")
	}
	return nil
}

// CheckReason parses the text that explains an adjustment.
func CheckReason(reason string) error {
	if len(reason) > maxReason || !utf8.ValidString(reason) {
		return invalid("REASON_INVALID", "reason", fmt.Sprintf("at most %d bytes of UTF-8", maxReason))
	}
	return nil
}

// CheckBudget parses a budget setting.
func CheckBudget(b *ledger.BudgetSetting) error {
	if b.Period != ledger.Daily && b.Period != ledger.Monthly {
		return invalid("BUDGET_INVALID", "budget.period", "one of day, month")
	}
	if b.Allowance < 0 {
		return invalid("BUDGET_INVALID", "budget.allowance", "at least 0")
	}
	return nil
}

// CheckLimits parses limits.
func CheckLimits(l ledger.Limits) error {
	if l.RequestsPerMinute < 0 || l.TokensPerMinute < 0 || l.MaxConcurrent < 0 {
		return invalid("LIMITS_INVALID", "limits", "at least 0, where 0 means no ceiling")
	}
	return nil
}

// CheckKey parses a key to be put.
func CheckKey(k *ledger.Key) error {
	switch {
	case k.ID.IsZero():
		return invalid("KEY_ID_MISSING", "key", "an id is required")
	case k.Name == "" || len(k.Name) > maxName || !utf8.ValidString(k.Name):
		return invalid("KEY_NAME_INVALID", "name", fmt.Sprintf("1 to %d bytes of UTF-8", maxName))
	case k.Principal == ledger.Principal{}:
		return invalid("PRINCIPAL_MISSING", "principal", "the fingerprint of the secret is required")
	case k.Principal != ledger.Principal(k.Digest[:16]):
		return invalid("PRINCIPAL_INVALID", "principal", "the first 16 bytes of the digest")
	case !AuthorityValid(k.Origin):
		return invalid("ORIGIN_INVALID", "origin", "one of operator, provisioner, config")
	}
	return nil
}

// PageLimit clamps a page's limit: 0 means DefaultPage, more than MaxPage is refused.
func PageLimit(limit int) (int, error) {
	if limit == 0 {
		return ledger.DefaultPage, nil
	}
	if limit < 0 || limit > ledger.MaxPage {
		return 0, invalid("LIMIT_INVALID", "limit", fmt.Sprintf("between 1 and %d, or 0 for %d", ledger.MaxPage, ledger.DefaultPage))
	}
	return limit, nil
}

// CheckPolicy parses a policy document to be stored: canonical JSON is the
// caller's duty, JSON at all and its size are checked here.
func CheckPolicy(body []byte) error {
	if len(body) == 0 || len(body) > ledger.MaxPolicyBytes || !json.Valid(body) {
		return invalid("POLICY_INVALID", "body", fmt.Sprintf("JSON of 1 to %d bytes", ledger.MaxPolicyBytes))
	}
	return nil
}

// CheckSnapshot parses a document to be published.
func CheckSnapshot(p ledger.Principal, doc *ledger.SnapshotDoc) error {
	switch {
	case p == ledger.Principal{}:
		return invalid("PRINCIPAL_MISSING", "principal", "the fingerprint of a credential is required")
	case len(doc.KeyName) > maxName || !utf8.ValidString(doc.KeyName):
		return invalid("KEY_NAME_INVALID", "key_name", fmt.Sprintf("at most %d bytes of UTF-8", maxName))
	case doc.Limits.MaxItemsPerRequest < 0 || doc.Limits.MaxConcurrent < 0:
		return invalid("LIMITS_INVALID", "limits", "at least 0, where 0 means no ceiling")
	}
	return nil
}

// CheckTTL parses the ttl of the lapse sweep.
func CheckTTL(ttl time.Duration) error {
	if ttl <= 0 || ttl > MaxTTL {
		return invalid("TTL_INVALID", "ttl", "longer than 0 and at most 1 hour")
	}
	return nil
}

// CheckRetention parses how long things are kept.
func CheckRetention(keep ledger.Retention) error {
	if keep.Reservations < 0 || keep.Events < 0 || keep.Minutes < 0 || keep.Answers < 0 {
		return invalid("RETENTION_INVALID", "retention", "at least 0, where 0 means for ever")
	}
	if keep.Reservations > 0 && keep.Answers > keep.Reservations {
		return invalid("RETENTION_INVALID", "retention.answers", "at most as long as reservations")
	}
	return nil
}
