package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// Bounds of a document.
const (
	MaxGlobs       = 1024 // per list
	MaxNameBytes   = 256  // a glob, a model id, a parameter's name
	MaxModelParams = 64
)

// Reason says why a model may not be called; "" means it may.
type Reason string

// The reasons of a refusal.
const (
	Allowed      Reason = ""
	Denied       Reason = "denied_models"  // a deny glob matches
	NotAllowed   Reason = "allowed_models" // no allow glob matches
	NoneDeclared Reason = "no_allowlist"   // the allowlist is empty and required
)

// Allows says whether the tenant may call the registry model id. Deny wins;
// then a non-empty allowlist must match; an empty one means any model, or none
// when RequireAllowlist is set.
func (d *Document) Allows(model string) Reason {
	for _, g := range d.DeniedModels {
		if Match(g, model) {
			return Denied
		}
	}
	if len(d.AllowedModels) == 0 {
		if d.RequireAllowlist {
			return NoneDeclared
		}
		return Allowed
	}
	for _, g := range d.AllowedModels {
		if Match(g, model) {
			return Allowed
		}
	}
	return NotAllowed
}

// Match says whether the whole name fits the glob: `*` stands for any run of
// bytes, '/' included; everything else, case too, stands for itself.
func Match(glob, name string) bool {
	head, rest, star := strings.Cut(glob, "*")
	if !star {
		return glob == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part) // leftmost is enough: `*` follows
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], after
	}
}

// check reports every fault of a document.
func (d *Document) check() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if d.Version != Version {
		add("version must be %d", Version)
	}
	if d.Tenant == "" || len(d.Tenant) > 64 {
		add("tenant must hold 1 to 64 bytes")
	}
	for name, v := range map[string]int64{"max_messages": d.MaxMessages, "max_output_tokens": d.MaxOutputTokens, "max_prompt_chars": d.MaxPromptChars} {
		if v < 0 {
			add("%s must not be negative", name)
		}
	}
	if s := d.ReplicaShare; s != nil && (s.Replicas < 1 || s.MarginPercent < 1 || s.MarginPercent > 100 || s.TenantBudget < 0) {
		add("replica_share must have replicas, a margin_percent of 1 to 100 and no negative budget")
	}
	if d.OnMaxTokensExceeded != Clamp && d.OnMaxTokensExceeded != Reject {
		add("on_max_tokens_exceeded must be clamp or reject")
	}
	for name, list := range map[string][]string{"allowed_models": d.AllowedModels, "denied_models": d.DeniedModels} {
		if len(list) > MaxGlobs {
			add("%s holds at most %d globs", name, MaxGlobs)
		}
		for _, g := range list {
			if !ValidName(g) {
				add("%s holds a glob that is not 1 to %d visible ASCII characters", name, MaxNameBytes)
				break
			}
		}
	}
	if d.DefaultModel != "" && !ValidName(d.DefaultModel) {
		add("default_model must be visible ASCII of at most %d characters", MaxNameBytes)
	}
	if d.ModelSuffix != "" && !ValidName(d.ModelSuffix) {
		add("model_suffix must be visible ASCII of at most %d characters", MaxNameBytes)
	}
	if d.Funding != "" && d.Funding != Leased {
		add("funding must be leased or absent")
	}
	if d.Funding == Leased && d.Receipts {
		add("funding leased excludes receipts")
	}
	if d.Funding == Leased && d.RequireIdempotencyKey {
		add("funding leased excludes require_idempotency_key")
	}
	if len(d.ModelParams) > MaxModelParams {
		add("model_params holds at most %d parameters", MaxModelParams)
	}
	for name := range d.ModelParams {
		if !ValidName(name) {
			add("model_params holds a name that is not 1 to %d visible ASCII characters", MaxNameBytes)
			break
		}
	}
	if len(faults) == 0 {
		return nil
	}
	err := errors.Join(sorted(faults)...)
	return fault.New(fault.Invalid, "POLICY_INVALID", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// ValidName says whether s can be a glob, a model id or a parameter's name:
// 1 to MaxNameBytes visible ASCII characters.
func ValidName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameBytes
}

// sorted orders faults by their text: two of them came out of maps.
func sorted(faults []error) []error {
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults
}
