package ledgertest

import (
	"time"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func (o *oracle) reclaim(now time.Time) (ledger.SweepReport, error) {
	var report ledger.SweepReport
	forfeited := units(0)
	for _, l := range o.lends {
		if !l.active() || l.expires.Add(ledger.ReclaimGrace).After(now) {
			continue
		}
		b := o.books[l.account]
		o.roll(b, now)
		o.endLease(l, b, units(0), now)
		l.reclaimed = true
		report.Done++
		forfeited = plus(forfeited, l.loss)
	}
	report.Units = shown(forfeited)
	return report, nil
}

func (o *oracle) lapse(sweepTTL time.Duration, now time.Time) (ledger.SweepReport, error) {
	patience := sweepTTL
	if !o.waits.IsZero() {
		patience += sweepTTL / 2
	}
	first := o.swept.IsZero() || now.Sub(o.swept) > patience
	o.swept = now
	if first {
		o.waits = now.Add(sweepTTL)
		return ledger.SweepReport{Waiting: true}, nil
	}
	if now.Before(o.waits) {
		return ledger.SweepReport{Waiting: true}, nil
	}
	o.waits = time.Time{}
	var report ledger.SweepReport
	billed := units(0)
	for _, h := range o.requests {
		if !h.open || h.expires.After(now) {
			continue
		}
		o.settle(h, o.books[h.account], ledger.Swept, 0, silent(), now)
		report.Done++
		billed = plus(billed, h.billed)
	}
	report.Units = shown(billed)
	return report, nil
}

func silent() ledger.Dimensions {
	return ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1}
}

func (o *oracle) rollAll(now time.Time) (ledger.SweepReport, error) {
	var report ledger.SweepReport
	came, went := units(0), units(0)
	for _, b := range o.books {
		if rolled, expired, deposited := o.roll(b, now); rolled {
			report.Done++
			came, went = plus(came, deposited), plus(went, expired)
		}
	}
	report.Units, report.Expired = shown(came), shown(went)
	return report, nil
}

// prune forgets what retention doesn't keep; what it billed stays.
func (o *oracle) prune(keep ledger.Retention, now time.Time) (ledger.SweepReport, error) {
	var report ledger.SweepReport
	for key := range o.minutes {
		if key.minute < minuteAt(now.Add(-max(keep.Minutes, time.Hour))) {
			delete(o.minutes, key)
			report.Done++
		}
	}
	after := keep.Answers
	if after == 0 {
		after = keep.Reservations
	}
	for id, h := range o.requests {
		if after > 0 && !h.open && h.closed.Before(now.Add(-after)) && o.free(id) {
			report.Done++
			report.Claims++
		}
	}
	if keep.Reservations > 0 {
		before := now.Add(-keep.Reservations)
		for id, h := range o.requests {
			if !h.open && h.closed.Before(before) {
				delete(o.requests, id)
				report.Done++
			}
		}
		for id, l := range o.lends {
			if !l.active() && l.loss.Sign() == 0 && l.ended.Before(before) {
				delete(o.lends, id)
				report.Done++
			}
		}
	}
	if keep.Events > 0 {
		for _, v := range o.bills {
			if !v.pruned && v.event.CommittedAt.Before(now.Add(-keep.Events)) {
				v.pruned = true
				report.Done++
			}
		}
	}
	return report, nil
}
