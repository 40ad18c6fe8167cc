package admissiontest_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/admission/admissiontest"
)

var start = time.Unix(1_800_000_000, 0)

func drawRate(t *rapid.T, name string, units, burst uint64) admission.Rate {
	if rapid.IntRange(0, 3).Draw(t, name+" is off") == 0 {
		return admission.Rate{}
	}
	return admission.Rate{
		Units: rapid.Uint64Range(1, units).Draw(t, name+" units"),
		Per:   rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 7 * time.Millisecond}).Draw(t, name+" per"),
		Burst: rapid.Uint64Range(1, burst).Draw(t, name+" burst"),
	}
}

// TestHistoriesAgreeWithTheOracle runs random histories of one account through
// the engine and the oracle. Every answer, charge and remainder must agree.
func TestHistoriesAgreeWithTheOracle(t *testing.T) {
	t.Parallel()
	for range 20 { // a hundred histories each, every one from a seed of its own
		t.Run("", func(t *testing.T) { rapid.Check(t, history) })
	}
}

// FuzzHistoriesAgreeWithTheOracle lets the fuzzer drive the same histories.
func FuzzHistoriesAgreeWithTheOracle(f *testing.F) { f.Fuzz(rapid.MakeFuzz(history)) }

type stage struct {
	principal int
	ticket    *admissiontest.Ticket
	pending   admission.Pending
	ready     admission.Ready
	committed admission.Committed
	at        int // 1 pending, 2 ready, 3 committed
}

// world is one history: the engine, the oracle, and what is in flight.
type world struct {
	t      *rapid.T
	engine *admission.Engine
	oracle *admissiontest.Oracle
	queue  *admission.UsageQueue
	slot   *admission.LeaseSlot
	lease  *admission.LocalLease // the oracle's is oracle.Lease
	now    time.Time
	leases map[*admission.LocalLease]*admissiontest.Lease
	live   []*stage
	billed *big.Int
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: start, leases: map[*admission.LocalLease]*admissiontest.Lease{}, billed: new(big.Int)}
	limits := admission.Limits{
		MaxItems:    rapid.Uint64Range(0, 30).Draw(t, "max items"),
		RequestRate: drawRate(t, "request", 50, 10), ItemRate: drawRate(t, "item", 500, 60), CostRate: drawRate(t, "cost", 5000, 3000),
		MaxConcurrent: rapid.Uint64Range(0, 4).Draw(t, "ceiling"),
	}
	if limits.MaxConcurrent > 0 {
		limits.PrincipalMaxConcurrent = rapid.Uint64Range(0, limits.MaxConcurrent).Draw(t, "principal ceiling")
	}
	costs := admission.CostTable{
		Fixed:   admission.CostUnits(rapid.Uint64Range(0, 20).Draw(t, "fixed")),
		Minimum: admission.CostUnits(rapid.Uint64Range(0, 40).Draw(t, "minimum")),
		Classes: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) admission.ClassCost {
			if rapid.IntRange(0, 5).Draw(t, "unpriced") == 0 {
				return admission.ClassCost{}
			}
			return admission.ClassCost{
				Weight: admission.CostUnits(rapid.Uint64Range(0, 50).Draw(t, "weight")), Priced: true,
				Permissions: admission.PermissionSet(rapid.SampledFrom([]uint64{0, 0, 0, 1, 2, 4}).Draw(t, "permissions")),
			}
		}), 1, 5).Draw(t, "classes"),
	}
	var enforcement admission.Enforcement
	if rapid.Bool().Draw(t, "elastic") {
		enforcement = admission.Enforcement{Mode: admission.Elastic, OverageCap: admission.CostUnits(rapid.Uint64Range(1, 4000).Draw(t, "cap"))}
	}
	var err error
	if w.engine, err = admission.NewEngine(admission.Config{MaxPrincipals: 4}); err != nil {
		t.Fatal(err)
	}
	w.engine.AlwaysFresh()
	publishable := func(p byte) (admission.PublishableSnapshot, error) {
		snapshot, err := admission.NewAccountSnapshot(admission.StatusActive, admission.SnapshotSpec{
			Principal: admission.Principal{p}, AccountID: admission.AccountID{1}, Generation: 1, Permissions: 3, Limits: limits, Costs: costs, Enforcement: enforcement,
		})
		if err != nil {
			return admission.PublishableSnapshot{}, err
		}
		return admission.NewPublishableSnapshot(snapshot)
	}
	if _, err := publishable(1); err != nil { // limits that no publication takes: go on with fewer
		limits.ItemRate, limits.CostRate = admission.Rate{}, admission.Rate{}
		if _, err := publishable(1); err != nil { // nor that cap
			enforcement = admission.Enforcement{}
		}
	}
	for p := range byte(2) {
		snapshot, err := publishable(p + 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.engine.Install(snapshot, w.now); got != admission.Accepted {
			t.Fatal(got)
		}
	}
	w.oracle = admissiontest.New(limits, costs, 3)
	if enforcement.Mode == admission.Elastic {
		w.oracle.Cap = new(big.Int).SetUint64(uint64(enforcement.OverageCap))
	}
	w.slot, _ = w.engine.LeaseSlot(admission.AccountID{1})
	if w.queue, err = admission.NewUsageQueue(256); err != nil {
		t.Fatal(err)
	}
	return w
}

func history(t *rapid.T) {
	w := newWorld(t)
	t.Repeat(map[string]func(*rapid.T){
		"admit": w.admit, "advance": w.advance, "lease": w.newLease, "attest": w.attest, "seal": w.seal, "step": w.step, "step again": w.step, "and again": w.step, "": w.check,
	})
}

func (w *world) advance(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int64{0, 1, 999, 1e6, 3e7, 1e9, 61e9, -1, -5e6}).Draw(t, "by")))
}

func (w *world) newLease(t *rapid.T) {
	units := rapid.Uint64Range(0, 3000).Draw(t, "units")
	ends := w.now.Add(time.Duration(rapid.Int64Range(-1, 3e9).Draw(t, "usable for")))
	lease, err := admission.NewLocalLease(admission.LeaseSpec{LeaseID: admission.LeaseID{1, byte(len(w.leases))}, Fence: 1 + uint64(len(w.leases)), Units: admission.CostUnits(units), ExpiresAt: ends, Shards: rapid.SampledFrom([]int{0, 2, 8}).Draw(t, "shards")})
	if err != nil {
		t.Fatal(err)
	}
	if displaced := w.slot.Replace(lease); displaced != w.lease {
		t.Fatal("another lease was displaced")
	}
	w.lease = lease
	w.oracle.Install(admissiontest.NewLease(units, ends))
	w.leases[lease] = w.oracle.Lease
}

func (w *world) attest(t *rapid.T) {
	remaining := rapid.SampledFrom([]uint64{0, 1, 100, 5000}).Draw(t, "attested")
	until := w.now.Add(time.Duration(rapid.Int64Range(0, 3e9).Draw(t, "attested for")))
	if !w.slot.Attest(w.slot.FundingEpoch(), admission.CostUnits(remaining), until) {
		t.Fatal("a timely answer was refused")
	}
	w.oracle.Attest(remaining, until)
}

func (w *world) seal(*rapid.T) {
	if w.lease != nil {
		w.lease.Seal()
		w.oracle.Lease.Sealed = true
	}
}

func (w *world) admit(t *rapid.T) {
	principal := rapid.IntRange(0, 1).Draw(t, "principal")
	counts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) admission.ClassCount {
		return admission.ClassCount{
			Class: rapid.Uint32Range(0, 5).Draw(t, "class"),
			Count: rapid.SampledFrom([]uint64{0, 1, 1, 2, 3, 10, 1 << 63}).Draw(t, "count"),
		}
	}), 0, 4).Draw(t, "workload")
	r, d := w.engine.Begin(admission.Principal{byte(principal + 1)}, 1, w.now)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	slot, d := r.ReserveUsage(w.queue)
	if d.Denied() {
		t.Fatal(d.Reason)
	}
	pending, d := r.Admit(admission.Classes(counts...), &slot, w.now)
	ticket, want := w.oracle.Admit(string(rune('a'+principal)), counts, w.now)
	if d.Reason != want {
		t.Fatalf("admit %v: %q, the oracle says %q", counts, d.Reason, want)
	}
	if want == 0 {
		w.live = append(w.live, &stage{principal: principal, ticket: ticket, pending: pending, at: 1})
	}
}

// step moves one request that is in flight on, or ends it.
func (w *world) step(t *rapid.T) {
	if len(w.live) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.live)-1).Draw(t, "which")
	s := w.live[i]
	end := func() { w.live = append(w.live[:i:i], w.live[i+1:]...) }
	cancel := rapid.IntRange(0, 3).Draw(t, "cancel") == 0
	var err error
	switch {
	case s.at == 1 && cancel:
		err = s.pending.Cancel()
		w.oracle.Cancel(s.ticket)
		end()
	case s.at == 1:
		s.ready, err = s.pending.AcquireCapacity(admission.NoGate{})
		s.at = 2
	case s.at == 2 && cancel:
		if got := s.ready.CancelHandle().Cancel(); got != admission.Cancelled {
			t.Fatalf("cancel: %d", got)
		}
		w.oracle.Cancel(s.ticket)
		end()
	case s.at == 2:
		s.committed, err = s.ready.Commit(admission.RequestID{1}, w.now)
		d, _ := admission.DenialOf(err)
		if want := w.oracle.Commit(s.ticket, w.now); d.Reason != want || want == 0 && err != nil {
			t.Fatalf("commit: %v, the oracle says %q", err, want)
		}
		if err != nil {
			end()
			return
		}
		s.at = 3
	default:
		actual := rapid.OneOf(rapid.Int64Range(-1, 400), rapid.Int64Range(0, 5000)).Draw(t, "actual")
		if actual >= 0 {
			if err := s.committed.Settle(admission.CostUnits(actual)); err != nil {
				t.Fatal(err)
			}
		}
		var charge admission.Charge
		charge, err = s.committed.Done()
		units, excess, payer := w.oracle.Done(s.ticket, actual)
		if uint64(charge.Units) != units.Uint64() || uint64(charge.Excess) != excess.Uint64() {
			t.Fatalf("charge %+v, the oracle says %v and %v", charge, units, excess)
		}
		w.billed.Add(w.billed, units)
		w.paidBy(t, payer, charge)
		end()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// paidBy drains the one event of a charge and compares the lease it names.
func (w *world) paidBy(t *rapid.T, payer *admissiontest.Lease, charge admission.Charge) {
	buf := make([]admission.UsageEvent, 8)
	n := w.queue.Drain(buf)
	e := buf[0]
	if n != 1 || e.Units != charge.Units || e.OverageUnits != charge.Excess {
		t.Fatalf("%d events, %+v, for the charge %+v", n, e, charge)
	}
	w.billed.Sub(w.billed, new(big.Int).SetUint64(uint64(e.Units)))
	if payer == nil {
		if e.Source != admission.SourceOverage || !e.LeaseID.IsZero() || e.Fence != 0 || e.OverageUnits != e.Units {
			t.Fatalf("on credit: %+v", e)
		}
		return
	}
	for lease, model := range w.leases {
		if model == payer && (e.Source != admission.SourceLease || e.LeaseID != lease.LeaseID() || e.Fence != lease.Fence()) {
			t.Fatalf("the event names %v at fence %d, the oracle %v at %d", e.LeaseID, e.Fence, lease.LeaseID(), lease.Fence())
		}
	}
}

// check compares everything that can be read, after each step.
func (w *world) check(t *rapid.T) {
	inFlight, _ := w.engine.Occupancy(admission.AccountID{1})
	if int64(inFlight) != w.oracle.InFlight() {
		t.Fatalf("%d in flight, the oracle says %d", inFlight, w.oracle.InFlight())
	}
	for lease, model := range w.leases {
		if uint64(lease.Remaining()) != model.Left.Uint64() || uint64(lease.Spent()) != model.Spent.Uint64() {
			t.Fatalf("lease: %d left, %d spent; the oracle says %v, %v", lease.Remaining(), lease.Spent(), model.Left, model.Spent)
		}
		settled := new(big.Int).Add(model.Left, model.Spent)
		if quiet := model.Sealed && settled.Cmp(model.Granted) == 0; lease.Quiet() != quiet {
			t.Fatalf("quiet %v, the oracle says %v", lease.Quiet(), quiet)
		}
	}
	credit := w.engine.Overage(admission.AccountID{1})
	if uint64(credit.Spent) != w.oracle.Spent.Uint64() || uint64(credit.Committed) != w.oracle.Committed.Uint64() {
		t.Fatalf("credit %+v, the oracle says %v, %v", credit, w.oracle.Spent, w.oracle.Committed)
	}
	c := w.engine.Counts()
	requests, units := w.oracle.Admitted()
	if int64(c.Admitted) != requests || c.UnitsAdmitted != units.Uint64() || c.Misuse != 0 {
		t.Fatalf("admitted %d of %d units, misuse %d; the oracle says %d of %v", c.Admitted, c.UnitsAdmitted, c.Misuse, requests, units)
	}
	if w.billed.Sign() != 0 {
		t.Fatalf("billed units differ from emitted ones by %v", w.billed)
	}
	if w.queue.Reserved() != uint64(len(w.live)) {
		t.Fatalf("%d slots are held by %d requests", w.queue.Reserved(), len(w.live))
	}
}
