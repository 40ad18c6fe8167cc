package runtime

import (
	"context"
	"sync"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/policy"
	"github.com/tollgate-platform/tollgate/libs/runtime/leases"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// Runtime is one instance's background plane.
type Runtime struct {
	opt       Options
	directory *directory
	holdings  *holdings
	leases    *leases.Manager // nil without leased funding
	usage     *usage.Writer   // nil without leased funding
}

// New checks the options and starts nothing.
func New(o Options) (*Runtime, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	r := &Runtime{opt: o, directory: newDirectory(o), holdings: newHoldings(o)}
	if o.Leases == nil {
		return r, nil
	}
	var err error
	o.Accounting.Sink, o.Accounting.Clock, o.Accounting.Log = o.Usage, o.Clock, o.Log
	if r.usage, err = usage.New(o.Accounting); err != nil {
		return nil, err
	}
	o.Funding.Allocator, o.Funding.Deliveries, o.Funding.Engine = o.Leases, r.usage, o.Engine
	o.Funding.Clock, o.Funding.Log = o.Clock, o.Log
	if r.leases, err = leases.New(o.Funding); err != nil {
		return nil, err
	}
	return r, nil
}

// Run keeps the directory current, renews reservations, flushes closes, keeps
// leases and delivers usage until ctx is done; then it returns nil. Call Drain
// before, to make the last closes and charges durable and to give leases back.
func (r *Runtime) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { r.directory.run(ctx) })
	wg.Go(func() { r.holdings.renewLoop(ctx) })
	wg.Go(func() { r.holdings.closeLoop(ctx) })
	if r.leases != nil {
		wg.Go(func() { _ = r.leases.Run(ctx) }) // gives nil
		wg.Go(func() { _ = r.usage.Run(ctx) })  // gives nil
	}
	wg.Wait()
	return nil
}

// Sync runs one pass of the directory now, so that what was applied before the
// call is in force after it.
func (r *Runtime) Sync(ctx context.Context) error { return r.directory.pass(ctx) }

// Leases keeps accounts funded from leases; nil where Options have none.
func (r *Runtime) Leases() *leases.Manager { return r.leases }

// Usage delivers what leased requests cost; nil where Options have no leases.
func (r *Runtime) Usage() *usage.Writer { return r.usage }

// Ready says why this instance cannot admit now, or nil: the directory is
// fresh, closer and usage writer have room, and the books of leases are sound.
func (r *Runtime) Ready(context.Context) error {
	if err := r.directory.ready(); err != nil {
		return err
	}
	if r.holdings.full() {
		return fault.New(fault.Unavailable, "LEDGER_BACKLOG", "too many requests wait to be closed in the ledger")
	}
	if r.leases == nil {
		return nil
	}
	if r.usage.Full() {
		return fault.New(fault.Unavailable, "ACCOUNTING_BACKLOG", "too many charges wait to be delivered to the ledger")
	}
	return r.leases.Ready()
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
