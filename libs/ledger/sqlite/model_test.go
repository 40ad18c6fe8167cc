package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/ledger/ledgertest"
)

// breaker has one transaction break off where it is told to.
type breaker struct {
	mu    sync.Mutex
	armed bool
	at    breakpoint
	broke bool
}

func (b *breaker) arm(at breakpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.at, b.broke = true, at, false
}

func (b *breaker) disarm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = false
	return b.broke
}

func (b *breaker) breaks(at breakpoint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed || at != b.at {
		return nil
	}
	b.armed, b.broke = false, true
	return fmt.Errorf("broken off at %d: %w", at, sql.ErrConnDone)
}

// TestModel compares this engine with the oracle, step by step.
func TestModel(t *testing.T) {
	ledgertest.Model(t, 40, func(t *testing.T, c *clock.Manual) ledgertest.Breakable {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ledger.db")
		var b breaker
		var l *Ledger
		reopen := func() ledger.Ledger {
			if l != nil {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if l, err = Open(t.Context(), Options{Path: path, Clock: c}); err != nil {
				t.Fatal(err)
			}
			l.writer.breaks = b.breaks
			return l
		}
		reopen()
		t.Cleanup(func() { _ = l.Close() })
		saboteur, err := connect(path, "OFF", 1, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = saboteur.close() })
		return ledgertest.Breakable{
			Fixture: ledgertest.Fixture{Ledger: l, Clock: c, Exec: func(statement string) error {
				_, err := saboteur.db.ExecContext(t.Context(), statement)
				return err
			}},
			Arm:    func(at ledgertest.Breakpoint) { b.arm(breakpoint(at)) },
			Disarm: b.disarm, Reopen: reopen,
		}
	})
}
