// Package metrics holds the gateway's instruments, named gw_* as the contract
// names them.
//
// One request makes a handful of updates when it ends, and none for a frame.
// Every label value comes from configuration: providers and models from the
// catalogue, tenants from the ledger's snapshots, reasons and codes from closed
// sets; a caller's input is never one. A Set is safe for concurrent use.
package metrics

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// A Set is every instrument of one gateway.
type Set struct {
	requests, rejected, rejectedBy               metric.Int64Counter
	started, completed, failed, aborted          metric.Int64Counter
	events, promptTokens, completionTokens, cost metric.Int64Counter
	responseBytes, upstreamErrors                metric.Int64Counter
	duration, ttft                               metric.Int64Histogram
	modelStarted, modelStreams, modelErrors      metric.Int64Counter
	modelPrompt, modelCompletion, modelCost      metric.Int64Counter
	modelTTFT, modelDuration                     metric.Int64Histogram
	tenantStreams, tenantErrors, tenantDenied    metric.Int64Counter
	tenantPrompt, tenantCompletion, tenantCost   metric.Int64Counter
	inFlight                                     metric.Int64UpDownCounter
	replays, conflicts, answers, unopened        metric.Int64Counter
}

// New registers the instruments on m. Uptime counts from started.
func New(m metric.Meter, c clock.Clock, started time.Time) (*Set, error) {
	s := &Set{}
	var errs []error
	counter := func(to *metric.Int64Counter, name, help string) {
		var err error
		*to, err = m.Int64Counter(name, metric.WithDescription(help))
		errs = append(errs, err)
	}
	histogram := func(to *metric.Int64Histogram, name, help string) {
		var err error
		*to, err = m.Int64Histogram(name, metric.WithDescription(help), metric.WithExplicitBucketBoundaries(
			1, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000))
		errs = append(errs, err)
	}
	counter(&s.requests, "gw_requests_total", "Chat requests received.")
	counter(&s.rejected, "gw_requests_rejected_total", "Chat requests refused before the provider was called.")
	counter(&s.rejectedBy, "gw_requests_rejected_by_reason_total", "Governance refusals by reason.")
	counter(&s.started, "gw_streams_started_total", "Answers that a provider began.")
	counter(&s.completed, "gw_streams_completed_total", "Answers that ended in full.")
	counter(&s.failed, "gw_streams_failed_total", "Answers that failed part-way.")
	counter(&s.aborted, "gw_streams_client_aborted_total", "Answers that the caller left.")
	counter(&s.events, "gw_stream_events_total", "Events written to callers.")
	counter(&s.promptTokens, "gw_prompt_tokens_total", "Prompt tokens, reported or estimated.")
	counter(&s.completionTokens, "gw_completion_tokens_total", "Completion tokens, reported or estimated.")
	counter(&s.cost, "gw_cost_nano_usd_total", "Nano-USD billed.")
	counter(&s.responseBytes, "gw_response_bytes_total", "Bytes of answers written to callers.")
	counter(&s.upstreamErrors, "gw_upstream_errors_total", "Failures of providers, by code.")
	histogram(&s.duration, "gw_stream_duration_ms", "Milliseconds from the request to the end of its answer.")
	histogram(&s.ttft, "gw_stream_ttft_ms", "Milliseconds from the request to the first content.")
	counter(&s.modelStarted, "gw_model_streams_started_total", "Answers begun, by model.")
	counter(&s.modelStreams, "gw_model_streams_total", "Answers ended, by model.")
	counter(&s.modelErrors, "gw_model_errors_total", "Answers failed, by model.")
	counter(&s.modelPrompt, "gw_model_prompt_tokens_total", "Prompt tokens, by model.")
	counter(&s.modelCompletion, "gw_model_completion_tokens_total", "Completion tokens, by model.")
	counter(&s.modelCost, "gw_model_cost_nano_usd_total", "Nano-USD billed, by model.")
	histogram(&s.modelTTFT, "gw_model_ttft_ms", "Milliseconds to the first content, by model.")
	histogram(&s.modelDuration, "gw_model_duration_ms", "Milliseconds to the end of the answer, by model.")
	counter(&s.tenantStreams, "gw_tenant_streams_total", "Answers ended, by tenant.")
	counter(&s.tenantErrors, "gw_tenant_errors_total", "Answers failed, by tenant.")
	counter(&s.tenantDenied, "gw_tenant_denied_total", "Requests refused, by tenant.")
	counter(&s.tenantPrompt, "gw_tenant_prompt_tokens_total", "Prompt tokens, by tenant.")
	counter(&s.tenantCompletion, "gw_tenant_completion_tokens_total", "Completion tokens, by tenant.")
	counter(&s.tenantCost, "gw_tenant_cost_nano_usd_total", "Nano-USD billed, by tenant.")
	counter(&s.replays, "tollgate_idempotency_replays_total", "Kept answers given again.")
	counter(&s.conflicts, "tollgate_idempotency_conflicts_total", "Requests refused because of their idempotency key, by code.")
	counter(&s.answers, "tollgate_idempotency_answers_total", "Finished answers with an idempotency key, by whether they were kept.")
	counter(&s.unopened, "tollgate_idempotency_unopened_total", "Kept answers that did not open and were not given.")
	var err error
	s.inFlight, err = m.Int64UpDownCounter("gw_streams_in_flight", metric.WithDescription("Admitted requests that have not ended."))
	errs = append(errs, err)
	_, err = m.Float64ObservableGauge("gw_uptime_seconds", metric.WithDescription("Seconds since the gateway started."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(c.Now().Sub(started).Seconds())
			return nil
		}))
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.zero()
	return s, nil
}

// zero makes series visible before they count: a rate over a series that
// appears with its first failure misses that failure.
func (s *Set) zero() {
	ctx := context.Background() //nolint:forbidigo // nobody asked for these zeros
	for _, c := range []metric.Int64Counter{
		s.requests, s.rejected, s.started, s.completed, s.failed, s.aborted, s.events,
		s.promptTokens, s.completionTokens, s.cost, s.responseBytes, s.replays, s.unopened,
	} {
		c.Add(ctx, 0)
	}
	for _, code := range conflictCodes() {
		s.conflicts.Add(ctx, 0, metric.WithAttributes(attribute.String("code", string(code))))
	}
	for _, f := range []Fate{FateKept, FateNoKeys, FateTooLarge} {
		s.answers.Add(ctx, 0, f.attribute())
	}
	s.inFlight.Add(ctx, 0)
	for _, class := range refusal.Classes() {
		s.rejectedBy.Add(ctx, 0, metric.WithAttributes(attribute.String("reason", string(class))))
	}
}

// Labels of one admitted request. All are from configuration.
type Labels struct{ Provider, Model, Tenant string }

// Ending is how an answer ended.
type Ending uint8

// The endings.
const (
	Completed Ending = iota
	Failed
	Aborted // the caller left
)

// An Answer is one admitted request at its end.
type Answer struct {
	Labels
	Ending           Ending
	Begun            bool   // the provider answered 200
	UpstreamCode     string // of the provider's failure, "" when none
	Events, Bytes    int64
	PromptTokens     int64
	CompletionTokens int64
	CostNanoUSD      int64
	Duration         time.Duration
	TTFT             time.Duration // negative: no content came
}

// Requested counts a chat request before anything is known about it.
func (s *Set) Requested(ctx context.Context) { s.requests.Add(ctx, 1) }

// Rejected counts a refusal; tenant is "" when the caller is not known.
func (s *Set) Rejected(ctx context.Context, r *refusal.Refusal, tenant string) {
	s.rejected.Add(ctx, 1)
	if c := r.Class(); c != refusal.ClassNone {
		s.rejectedBy.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", string(c))))
	}
	if slices.Contains(conflictCodes(), r.Code) {
		s.conflicts.Add(ctx, 1, metric.WithAttributes(attribute.String("code", string(r.Code))))
	}
	if tenant != "" {
		s.tenantDenied.Add(ctx, 1, metric.WithAttributes(attribute.String("tenant", label(tenant))))
	}
}

// Admitted counts a request in; Answered counts it out again.
func (s *Set) Admitted(ctx context.Context) { s.inFlight.Add(ctx, 1) }

// Answered counts an admitted request at its end, once.
func (s *Set) Answered(ctx context.Context, a Answer) {
	s.inFlight.Add(ctx, -1)
	model := metric.WithAttributeSet(attribute.NewSet(
		attribute.String("provider", label(a.Provider)), attribute.String("model", label(a.Model))))
	tenant := metric.WithAttributeSet(attribute.NewSet(attribute.String("tenant", label(a.Tenant))))
	if a.Begun {
		s.started.Add(ctx, 1)
		s.modelStarted.Add(ctx, 1, model)
	}
	switch a.Ending {
	case Completed:
		s.completed.Add(ctx, 1)
	case Failed:
		s.failed.Add(ctx, 1)
		s.modelErrors.Add(ctx, 1, model)
		s.tenantErrors.Add(ctx, 1, tenant)
	case Aborted:
		s.aborted.Add(ctx, 1)
	}
	if a.UpstreamCode != "" {
		s.upstreamErrors.Add(ctx, 1, metric.WithAttributes(attribute.String("code", a.UpstreamCode)))
	}
	s.events.Add(ctx, a.Events)
	s.responseBytes.Add(ctx, a.Bytes)
	s.promptTokens.Add(ctx, a.PromptTokens)
	s.completionTokens.Add(ctx, a.CompletionTokens)
	s.cost.Add(ctx, a.CostNanoUSD)
	s.modelStreams.Add(ctx, 1, model)
	s.modelPrompt.Add(ctx, a.PromptTokens, model)
	s.modelCompletion.Add(ctx, a.CompletionTokens, model)
	s.modelCost.Add(ctx, a.CostNanoUSD, model)
	s.tenantStreams.Add(ctx, 1, tenant)
	s.tenantPrompt.Add(ctx, a.PromptTokens, tenant)
	s.tenantCompletion.Add(ctx, a.CompletionTokens, tenant)
	s.tenantCost.Add(ctx, a.CostNanoUSD, tenant)
	s.duration.Record(ctx, a.Duration.Milliseconds())
	s.modelDuration.Record(ctx, a.Duration.Milliseconds(), model)
	if a.TTFT >= 0 {
		s.ttft.Record(ctx, a.TTFT.Milliseconds())
		s.modelTTFT.Record(ctx, a.TTFT.Milliseconds(), model)
	}
}

const labelMax = 128

// label keeps a configured name that a text exposition could misread, or that
// is too long, out of a label.
func label(s string) string {
	if s == "" || len(s) > labelMax {
		return "invalid"
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '{' || c == '}' || c == ',' {
			return "invalid"
		}
	}
	return s
}
