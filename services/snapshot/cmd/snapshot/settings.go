package main

import (
	"errors"

	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/chassis/process/books"
)

// settings are the process's.
type settings struct {
	process.Base `config:",inline"`

	Ledger books.Settings `config:"ledger"`
}

func defaults() settings {
	return settings{Base: process.Defaults("snapshot", process.SnapshotPort), Ledger: books.Defaults()}
}

// Validate names every fault.
func (s *settings) Validate() error { return errors.Join(s.Base.Validate(), s.Ledger.Validate()) }
