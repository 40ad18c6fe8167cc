package main

import (
	"errors"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/services/receipts"
)

// settings are the process's.
type settings struct {
	process.Base `config:",inline"`

	Receipts receipts.Config `config:"receipts"`
}

func defaults() settings {
	s := settings{Base: process.Defaults("receipts", process.ReceiptsPort), Receipts: receipts.Defaults()}
	s.Receipts.Enabled, s.Receipts.Directory = true, "receipts"
	return s
}

// Validate names every fault.
func (s *settings) Validate() error {
	faults := []error{s.Base.Validate(), s.Receipts.Validate()}
	if !s.Receipts.Enabled {
		faults = append(faults, errors.New("receipts.enabled: must be true: this process does nothing else"))
	}
	return errors.Join(faults...)
}
