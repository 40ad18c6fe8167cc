package receipts

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/chain"
)

// settledChain is a chain whose opening has ended, well or not.
type settledChain struct {
	account ident.ID
	chain   *chain.Chain // nil when it could not be opened
}

// settled lists chains in the order of their accounts' ids.
func (s *Service) settled() []settledChain {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]settledChain, 0, len(s.chains))
	for _, account := range sortedAccounts(s.chains) {
		select {
		case <-s.chains[account].ready:
			out = append(out, settledChain{account, s.chains[account].chain})
		default:
		}
	}
	return out
}

// Status is how evidence stands in this process.
type Status struct {
	Enabled bool     `json:"enabled"`
	Chains  int      `json:"tenants"`
	Stopped []string `json:"stopped,omitempty"` // labels of accounts whose chain takes nothing until a restart
}

// Status tells which chains are stopped.
func (s *Service) Status() Status {
	st := Status{Enabled: s.cfg.Enabled}
	for _, e := range s.settled() {
		st.Chains++
		if e.chain == nil || e.chain.Stopped() != nil {
			st.Stopped = append(st.Stopped, s.deps.Label(e.account))
		}
	}
	return st
}

// instrument makes the metrics. They are read when they are collected.
func (s *Service) instrument() error {
	var faults []error
	counter := func(name, about string) metric.Int64ObservableCounter {
		c, err := s.deps.Meter.Int64ObservableCounter(name, metric.WithDescription(about))
		faults = append(faults, err)
		return c
	}
	gauge := func(name, about string) metric.Int64ObservableGauge {
		g, err := s.deps.Meter.Int64ObservableGauge(name, metric.WithDescription(about))
		faults = append(faults, err)
		return g
	}
	var (
		written    = counter("tollgate_receipts_written_total", "Entries this process made durable.")
		failures   = counter("tollgate_receipts_write_failures_total", "Entries refused because they could not be made durable.")
		full       = counter("tollgate_receipts_queue_full_total", "Entries refused because the chain's queue was full.")
		recoveries = counter("tollgate_receipts_recoveries_total", "Torn file ends moved to quarantine at the start.")
		stopped    = gauge("tollgate_receipts_chain_stopped", "1 when the chain takes nothing until a restart.")
		entries    = gauge("tollgate_receipts_entries", "Entries in the log.")
		waiting    = gauge("tollgate_receipts_queue_depth", "Entries that wait to be written.")
		age        = gauge("tollgate_receipts_anchor_age_seconds", "Seconds since this process wrote the last anchor; -1 before the first.")
	)
	if err := errors.Join(faults...); err != nil {
		return err
	}
	var err error
	s.metrics, err = s.deps.Meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, e := range s.settled() {
			account := metric.WithAttributes(attribute.String("account", s.deps.Label(e.account)))
			if e.chain == nil {
				o.ObserveInt64(stopped, 1, account)
				continue
			}
			st := e.chain.Stats()
			o.ObserveInt64(written, int64(st.Written), account)
			o.ObserveInt64(failures, int64(st.Failures), account)
			o.ObserveInt64(full, int64(st.Full), account)
			o.ObserveInt64(recoveries, int64(st.Recoveries), account)
			o.ObserveInt64(stopped, oneIf(st.Stopped), account)
			o.ObserveInt64(entries, int64(st.Entries), account)
			o.ObserveInt64(waiting, int64(st.Waiting), account)
			o.ObserveInt64(age, s.anchorAge(st), account)
		}
		return nil
	}, written, failures, full, recoveries, stopped, entries, waiting, age)
	return err
}

func (s *Service) anchorAge(st chain.Stats) int64 {
	if st.AnchoredAt.IsZero() {
		return -1
	}
	return int64(max(s.deps.Clock.Now().Sub(st.AnchoredAt), 0).Seconds())
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
