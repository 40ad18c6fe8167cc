package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/services/lease"
)

// settings are the process's.
type settings struct {
	process.Base `config:",inline"`

	Ledger ledgerSettings `config:"ledger"`
}

type ledgerSettings struct {
	books.Settings `config:",inline"`

	LeaseSecs                int64 `config:"lease_secs"`
	SweepIntervalSecs        int64 `config:"sweep_interval_secs"`
	ReservationRetentionDays int64 `config:"reservation_retention_days"` // 0: keep
	IdempotencyRetentionSecs int64 `config:"idempotency_retention_secs"` // 0: as long as the reservation
}

const day = 24 * time.Hour

func defaults() settings {
	return settings{
		Base:   process.Defaults("lease", process.LeasePort),
		Ledger: ledgerSettings{Settings: books.Defaults(), LeaseSecs: 60, SweepIntervalSecs: 60, ReservationRetentionDays: 30, IdempotencyRetentionSecs: 86_400},
	}
}

// Validate names every fault.
func (s *settings) Validate() error {
	faults := []error{s.Base.Validate(), s.Ledger.Validate()}
	for _, f := range []struct {
		key       string
		n         int64
		low, high int64
	}{
		{"ledger.lease_secs", s.Ledger.LeaseSecs, 3, 300},
		{"ledger.sweep_interval_secs", s.Ledger.SweepIntervalSecs, 1, 86_400},
		{"ledger.reservation_retention_days", s.Ledger.ReservationRetentionDays, 0, 3650},
		{"ledger.idempotency_retention_secs", s.Ledger.IdempotencyRetentionSecs, 0, 3650 * 86_400},
	} {
		if f.n < f.low || f.n > f.high {
			faults = append(faults, fmt.Errorf("%s: must be %d to %d, not %d", f.key, f.low, f.high, f.n))
		}
	}
	if days, secs := s.Ledger.ReservationRetentionDays, s.Ledger.IdempotencyRetentionSecs; days != 0 && secs > days*86_400 {
		faults = append(faults, fmt.Errorf("ledger.idempotency_retention_secs: must be at most ledger.reservation_retention_days (%d days), not %d", days, secs))
	}
	return errors.Join(faults...)
}

func (s *settings) service() lease.Config {
	c := lease.Defaults()
	c.TTL = time.Duration(s.Ledger.LeaseSecs) * time.Second
	c.SweepEvery = time.Duration(s.Ledger.SweepIntervalSecs) * time.Second
	c.Retention.Reservations = time.Duration(s.Ledger.ReservationRetentionDays) * day
	c.Retention.Answers = time.Duration(s.Ledger.IdempotencyRetentionSecs) * time.Second
	return c
}
