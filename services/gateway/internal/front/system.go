package front

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/catalog"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/exchange"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/govern"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// enter lets a caller into a system route, or answers it.
func (s *Server) enter(w http.ResponseWriter, r *http.Request, scopes uint64) (*govern.Caller, bool) {
	c, ref := s.Enter(r, scopes)
	if ref != nil {
		s.refuseSystem(w, r, ref)
		return nil, false
	}
	return c, true
}

func (s *Server) document(w http.ResponseWriter, r *http.Request, status int, doc any) {
	b, err := json.Marshal(doc)
	if err != nil {
		s.refuseSystem(w, r, refusal.Because(refusal.Internal, "the request failed inside the gateway", err))
		return
	}
	if w.Header().Get(exchange.HeaderRequestID) == "" {
		s.Identify(w.Header(), r)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a caller that has gone needs no answer
}

// A modelEntry is one row of GET /v1/models. Numbers that the catalogue doesn't
// state are null.
type modelEntry struct {
	ID               string        `json:"id"`
	Object           string        `json:"object"`
	DisplayName      string        `json:"display_name"`
	Provider         string        `json:"provider"`
	UpstreamModel    string        `json:"upstream_model"`
	Aliases          []string      `json:"aliases"`
	LatencySLOMillis *uint64       `json:"latency_slo_ms"`
	MaxContextTokens *uint64       `json:"max_context_tokens"`
	MaxOutputTokens  *uint64       `json:"max_output_tokens"`
	InputPrice       catalog.Price `json:"input_per_mtok_usd"`
	OutputPrice      catalog.Price `json:"output_per_mtok_usd"`
}

type modelList struct {
	Object     string       `json:"object"`
	Data       []modelEntry `json:"data"`
	Generation int64        `json:"registry_generation"`
}

// models lists what the caller may call, sorted by id.
func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	c, ok := s.enter(w, r, ledger.PermModelsRead)
	if !ok {
		return
	}
	models, generation := s.Models(c)
	list := modelList{Object: "list", Data: []modelEntry{}, Generation: generation}
	for _, m := range models {
		aliases := m.Aliases
		if aliases == nil {
			aliases = []string{}
		}
		list.Data = append(list.Data, modelEntry{
			ID: m.ID, Object: "model", DisplayName: m.DisplayName, Provider: m.Route.Provider, UpstreamModel: m.Route.UpstreamModel,
			Aliases: aliases, LatencySLOMillis: stated(m.LatencySLOMillis), MaxContextTokens: stated(m.MaxContextTokens),
			MaxOutputTokens: stated(m.MaxOutputTokens), InputPrice: m.Prices.Input, OutputPrice: m.Prices.Output,
		})
	}
	s.document(w, r, http.StatusOK, list)
}

func stated(n uint64) *uint64 {
	if n == 0 {
		return nil
	}
	return &n
}

type usageReport struct {
	TenantID           string      `json:"tenant_id"`
	RequestsLastMinute int64       `json:"requests_last_minute"`
	TokensLastMinute   int64       `json:"tokens_last_minute"`
	StreamsInFlight    int64       `json:"streams_in_flight"`
	Spent              int64       `json:"spent_nano_usd"`
	Remaining          int64       `json:"remaining_nano_usd"`
	DailyBudget        int64       `json:"daily_budget_nano_usd"`
	BudgetScope        any         `json:"budget_scope"` // "tenant" or replicaShare
	BudgetDay          int64       `json:"budget_day"`
	Limits             usageLimits `json:"limits"`
}

// replicaShare is the scope of a replica under the quota split.
type replicaShare struct {
	Share struct {
		Replicas      int64 `json:"replicas"`
		MarginPercent int64 `json:"margin_percent"`
		TenantBudget  int64 `json:"tenant_budget_nano_usd"`
	} `json:"replica_share"`
}

type usageLimits struct {
	RequestsPerMinute    int64 `json:"requests_per_minute"`
	TokensPerMinute      int64 `json:"tokens_per_minute"`
	MaxConcurrentStreams int64 `json:"max_concurrent_streams"`
	MaxOutputTokens      int64 `json:"max_output_tokens"`
}

// usage reports the caller's own quota and spend. Any live key may ask.
func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	c, ok := s.enter(w, r, 0)
	if !ok {
		return
	}
	u, ref := s.AccountUsage(r.Context(), c)
	if ref != nil {
		s.refuseSystem(w, r, ref)
		return
	}
	report := usageReport{
		TenantID: c.Tenant(), RequestsLastMinute: u.RequestsThisMinute, TokensLastMinute: u.TokensThisMinute,
		StreamsInFlight: u.OpenReservations, Spent: u.Spent, Remaining: u.Remaining, BudgetScope: "tenant", BudgetDay: u.Day,
		Limits: usageLimits{
			RequestsPerMinute: u.Account.Limits.RequestsPerMinute, TokensPerMinute: u.Account.Limits.TokensPerMinute,
			MaxConcurrentStreams: u.Account.Limits.MaxConcurrent, MaxOutputTokens: c.Policy.MaxOutputTokens,
		},
	}
	if b := u.Account.Budget; b != nil {
		report.DailyBudget = b.Allowance
	}
	if p := c.Policy.ReplicaShare; p != nil {
		var scope replicaShare
		scope.Share.Replicas, scope.Share.MarginPercent, scope.Share.TenantBudget = p.Replicas, p.MarginPercent, p.TenantBudget
		report.BudgetScope = scope
	}
	s.document(w, r, http.StatusOK, report)
}

type readiness struct {
	Status      string      `json:"status"`
	Issues      []string    `json:"issues,omitempty"`
	Uptime      *float64    `json:"uptime_seconds,omitempty"`
	Models      *int        `json:"models,omitempty"`
	Providers   []string    `json:"providers,omitempty"`
	Generation  *int64      `json:"registry_generation,omitempty"`
	Unavailable []string    `json:"unavailable_models"`
	Ledger      ledgerState `json:"ledger"`
}

type ledgerState struct {
	Backend     string `json:"backend"`
	Durability  string `json:"durability"`
	ReplicaMode any    `json:"replica_mode"` // the ledger's word, or quotaSplit
}

type quotaSplit struct {
	Split struct {
		Replicas      int64 `json:"replicas"`
		MarginPercent int64 `json:"margin_percent"`
	} `json:"quota_split"`
}

func ledgerStateOf(i ledger.Info) ledgerState {
	state := ledgerState{Backend: i.Backend, Durability: i.Durability, ReplicaMode: i.ReplicaMode}
	if i.Split.Set() {
		var mode quotaSplit
		mode.Split.Replicas, mode.Split.MarginPercent = i.Split.Replicas, i.Split.MarginPercent
		state.ReplicaMode = mode
	}
	return state
}

// ready says whether this instance can serve: at least one model's route is
// usable, and the process has no issues. No network is probed for it.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	g := s.Catalog()
	doc := readiness{
		Status: "ready", Unavailable: g.Catalog.Unusable(),
		Ledger: ledgerStateOf(s.Health.Ledger()),
	}
	if doc.Unavailable == nil {
		doc.Unavailable = []string{}
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.Settings.QueryTimeout)
	defer cancel()
	issues := s.Health.Issues(ctx)
	if !g.Catalog.Ready() {
		issues = append(issues, "no model has a usable provider route")
	}
	if s.Stopped() {
		issues = append(issues, "this gateway is shutting down")
	}
	if len(issues) > 0 {
		doc.Status, doc.Issues = "not_ready", issues
		s.document(w, r, http.StatusServiceUnavailable, doc)
		return
	}
	uptime, models := s.Health.Uptime().Seconds(), len(g.Catalog.Models())
	doc.Uptime, doc.Models, doc.Providers, doc.Generation = &uptime, &models, g.Catalog.Providers(), &g.Number
	s.document(w, r, http.StatusOK, doc)
}

// scrapeByAdmin is /metrics on the public port: it names every tenant's spend.
func (s *Server) scrapeByAdmin(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.enter(w, r, ledger.PermAdmin); ok {
		s.Scrape.ServeHTTP(w, r)
	}
}
