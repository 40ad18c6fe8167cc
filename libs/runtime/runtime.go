package runtime

import (
	"context"
	"sync"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
)

// Runtime is one instance's background plane.
type Runtime struct {
	opt       Options
	directory *directory
	holdings  *holdings
}

// New checks the options and starts nothing.
func New(o Options) (*Runtime, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Runtime{opt: o, directory: newDirectory(o), holdings: newHoldings(o)}, nil
}

// Run keeps the directory current, renews reservations and flushes closes until
// ctx is done; then it returns nil. Call Drain before, to make the last closes
// durable.
func (r *Runtime) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { r.directory.run(ctx) })
	wg.Go(func() { r.holdings.renewLoop(ctx) })
	wg.Go(func() { r.holdings.closeLoop(ctx) })
	wg.Wait()
	return nil
}

// Sync runs one pass of the directory now, so that what was applied before the
// call is in force after it.
func (r *Runtime) Sync(ctx context.Context) error { return r.directory.pass(ctx) }

// Ready says why this instance cannot admit now, or nil: the directory is
// fresh and the closer has room.
func (r *Runtime) Ready(context.Context) error {
	if err := r.directory.ready(); err != nil {
		return err
	}
	if r.holdings.full() {
		return fault.New(fault.Unavailable, "LEDGER_BACKLOG", "too many requests wait to be closed in the ledger")
	}
	return nil
}

// Registry verifies presented keys; it is replaced whole by every pass that
// finds a change.
func (r *Runtime) Registry() *auth.Registry { return r.directory.registry }

// Holder is this process as a holder of reservations.
func (r *Runtime) Holder() ident.ID { return r.opt.Holder }

// Policy gives the policy document of a snapshot without I/O: a pass reads it
// before it installs the snapshot. NotFound for the zero revision, Unavailable
// for a document that could not be read.
func (r *Runtime) Policy(revision [32]byte) (*policy.Document, error) {
	return r.directory.policies.get(revision)
}
