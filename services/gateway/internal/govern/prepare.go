package govern

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/chat"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/provider"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// Prepared is a request that policy allows, priced at its worst case.
type Prepared struct {
	Chat  *chat.Request
	Model *catalog.Model
	// Call is what the provider will be asked.
	Call  provider.Request
	Quote catalog.Quote
	// Claim is that of the caller's idempotency key; nil without one.
	Claim *ledger.Idempotency
}

// Forget drops the messages once the provider has them.
func (p *Prepared) Forget() { p.Call.Messages, p.Chat.Messages = nil, nil }

// Prepare decides everything that needs no ledger, in the contract's order:
// model, allowlist, messages and prompt, parameters, output cap, price. It
// changes nothing.
func Prepare(c *catalog.Catalog, doc *policy.Document, req *chat.Request) (*Prepared, *refusal.Refusal) {
	model, ok := c.Resolve(req.Model)
	if !ok {
		return nil, refusal.New(refusal.InvalidModel, "model: is not in the catalogue; GET /v1/models lists what may be called")
	}
	if why := doc.Allows(model.ID); why != policy.Allowed {
		return nil, refusal.New(refusal.ModelNotAllowed, notAllowed(why))
	}
	if req.Passthrough && !doc.AllowPassthrough {
		return nil, refusal.New(refusal.Forbidden, "framing: passthrough is not allowed for this tenant")
	}
	size, ref := measured(doc, req)
	if ref != nil {
		return nil, ref
	}
	params, maxTokens, ref := merge(model, doc, req)
	if ref != nil {
		return nil, ref
	}
	if len(model.DefaultParams) > 0 || len(doc.ModelParams) > 0 {
		// Tools that configuration adds are part of the prompt that is priced.
		merged, err := catalog.MeasurePrompt(req.Messages, params)
		if err != nil {
			return nil, chat.PromptRefusal(err)
		}
		size = merged
	}
	if maxTokens, ref = capped(model, doc, maxTokens); ref != nil {
		return nil, ref
	}
	quote, err := model.Quote(model.PromptTokens(size), maxTokens)
	if err != nil || quote.Items > math.MaxInt64 {
		return nil, refusal.Because(refusal.InvalidParameter, "max_tokens: the request's worst-case cost is out of range", err)
	}
	route := &model.Route
	if doc.ModelSuffix != "" {
		suffixed := model.Route
		suffixed.UpstreamModel += doc.ModelSuffix
		route = &suffixed
	}
	if !route.Usable() {
		return nil, refusal.Upstream(string(provider.AuthError), "the model's provider is not configured on this gateway", false, "")
	}
	return &Prepared{
		Chat: req, Model: model, Quote: quote,
		Call: provider.Request{Route: route, Messages: req.Messages, Params: params, MaxTokens: maxTokens},
	}, nil
}

func notAllowed(why policy.Reason) string {
	if why == policy.Denied {
		return "model: is on the tenant's denied_models"
	}
	return "model: is not on the tenant's allowed_models"
}

// measured counts the prompt and holds it against the tenant's bounds.
func measured(doc *policy.Document, req *chat.Request) (catalog.PromptSize, *refusal.Refusal) {
	if doc.MaxMessages > 0 && req.Count > doc.MaxMessages {
		return catalog.PromptSize{}, refusal.New(refusal.Forbidden, fmt.Sprintf("messages: at most %d are allowed for this tenant", doc.MaxMessages))
	}
	size, err := catalog.MeasurePrompt(req.Messages, req.Params)
	if err != nil {
		return catalog.PromptSize{}, chat.PromptRefusal(err)
	}
	if doc.MaxPromptChars > 0 && size.Runes > uint64(doc.MaxPromptChars) {
		return catalog.PromptSize{}, refusal.New(refusal.Forbidden, fmt.Sprintf("messages: at most %d characters are allowed for this tenant", doc.MaxPromptChars))
	}
	return size, nil
}

// merge lays the layers over each other: registry default_params < caller <
// tenant model_params. The output cap is one parameter under two names, so it
// is read from each layer by itself and is in the result of neither.
func merge(model *catalog.Model, doc *policy.Document, req *chat.Request) (catalog.Params, uint64, *refusal.Refusal) {
	defaultCap, defaults, ref := chat.OutputCap("default_params.", model.DefaultParams)
	if ref != nil {
		return nil, 0, misconfigured(ref)
	}
	pinnedCap, pins, ref := chat.OutputCap("model_params.", pinned(doc.ModelParams))
	if ref != nil {
		return nil, 0, misconfigured(ref)
	}
	merged := catalog.Merge(defaults, req.Params, pins)
	kept := merged[:0]
	for _, p := range merged {
		// A parameter that is the engine's own, or null, says nothing.
		if !provider.Reserved(p.Name) && p.Name != "n" && string(p.Value) != "null" {
			kept = append(kept, p)
		}
	}
	for _, c := range []uint64{pinnedCap, req.MaxTokens, defaultCap} {
		if c > 0 {
			return kept, c, nil
		}
	}
	return nil, 0, refusal.New(refusal.MaxTokensRequired, "max_tokens: is required, because the cost is reserved before the model is called")
}

// misconfigured turns a fault of configuration into the gateway's own: the
// caller can do nothing about it.
func misconfigured(ref *refusal.Refusal) *refusal.Refusal {
	return refusal.Because(refusal.Internal, "the model's parameters are misconfigured on this gateway", ref)
}

// pinned gives a tenant's pinned parameters in the order of their names: map
// order never reaches a provider.
func pinned(params map[string]json.RawMessage) catalog.Params {
	out := make(catalog.Params, 0, len(params))
	for name, v := range params {
		out = append(out, catalog.Param{Name: name, Value: v})
	}
	slices.SortFunc(out, func(a, b catalog.Param) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// capped holds the output cap against the lower of the tenant's ceiling and the
// model's own, and clamps or refuses.
func capped(model *catalog.Model, doc *policy.Document, maxTokens uint64) (uint64, *refusal.Refusal) {
	ceiling := model.MaxOutputTokens
	if doc.MaxOutputTokens > 0 && (ceiling == 0 || uint64(doc.MaxOutputTokens) < ceiling) {
		ceiling = uint64(doc.MaxOutputTokens)
	}
	if ceiling == 0 || maxTokens <= ceiling {
		return maxTokens, nil
	}
	if doc.OnMaxTokensExceeded == policy.Reject {
		return 0, refusal.New(refusal.LimitExceeded, fmt.Sprintf("max_tokens: must be at most %d", ceiling))
	}
	return ceiling, nil
}
