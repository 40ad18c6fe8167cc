package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
	"github.com/tollgate-platform/tollgate/services/usage"
)

// settings are the process's.
type settings struct {
	process.Base `config:",inline"`

	Ledger ledgerSettings `config:"ledger"`
}

type ledgerSettings struct {
	books.Settings `config:",inline"`

	AuditIntervalSecs int64 `config:"audit_interval_secs"`
}

func defaults() settings {
	return settings{
		Base:   process.Defaults("usage", process.UsagePort),
		Ledger: ledgerSettings{Settings: books.Defaults(), AuditIntervalSecs: 300},
	}
}

// Validate names every fault.
func (s *settings) Validate() error {
	faults := []error{s.Base.Validate(), s.Ledger.Validate()}
	if n := s.Ledger.AuditIntervalSecs; n < 1 || n > 86_400 {
		faults = append(faults, fmt.Errorf("ledger.audit_interval_secs: must be 1 to 86400, not %d", n))
	}
	return errors.Join(faults...)
}

func (s *settings) service() usage.Config {
	return usage.Config{AuditEvery: time.Duration(s.Ledger.AuditIntervalSecs) * time.Second}
}
