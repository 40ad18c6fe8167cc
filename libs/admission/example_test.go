package admission_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
)

// at is when the examples run: the package reads no clock.
var at = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// oneAccount gives an engine that knows one principal, and its lease slot.
func oneAccount(spec admission.SnapshotSpec) (*admission.Engine, *admission.LeaseSlot, error) {
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: 1000})
	if err != nil {
		return nil, nil, err
	}
	engine.AlwaysFresh()
	spec.Principal, spec.AccountID, spec.Generation, spec.Permissions = admission.Principal{1}, admission.AccountID{2}, 1, 1
	snapshot, err := admission.NewAccountSnapshot(admission.StatusActive, spec)
	if err != nil {
		return nil, nil, err
	}
	publishable, err := admission.NewPublishableSnapshot(snapshot)
	if err != nil {
		return nil, nil, err
	}
	engine.Install(publishable, at)
	slot, _ := engine.LeaseSlot(spec.AccountID)
	return engine, slot, nil
}

func newLease(units admission.CostUnits) *admission.LocalLease {
	lease, err := admission.NewLocalLease(admission.LeaseSpec{
		LeaseID: admission.LeaseID{3}, Fence: 1, Units: units, ExpiresAt: at.Add(time.Minute), SafetyMargin: time.Second,
	})
	if err != nil {
		panic(err)
	}
	return lease
}

// An HTTP handler asks in order: who, before the body is read; what, once it
// is; then it runs the work and says so.
func Example_httpHandler() {
	engine, slot, err := oneAccount(admission.SnapshotSpec{
		Limits: admission.Limits{RequestRate: admission.PerMinute(2, 2), MaxConcurrent: 10},
		Costs:  admission.CostTable{Fixed: 1, Classes: []admission.ClassCost{{Weight: 2, Priced: true}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	slot.Replace(newLease(100))
	queue, _ := admission.NewUsageQueue(64)
	refuse := func(w http.ResponseWriter, d admission.Denial) {
		http.Error(w, d.Reason.String(), d.Reason.HTTPStatus())
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		now := at // a service asks its clock
		request, d := engine.Begin(admission.Principal{1}, 1, now)
		if d.Denied() {
			refuse(w, d)
			return
		}
		words := 3 // of the body, which is read here
		room, d := request.ReserveUsage(queue)
		if d.Denied() {
			refuse(w, d)
			return
		}
		pending, d := request.Admit(admission.Classes(admission.ClassCount{Class: 0, Count: uint64(words)}), &room, now)
		if d.Denied() {
			refuse(w, d)
			return
		}
		ready, err := pending.AcquireCapacity(admission.NoGate{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		running, err := ready.Commit(admission.RequestID{9}, now)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "done")
		if _, err := running.Done(); err != nil {
			fmt.Println(err)
		}
	}
	for range 3 {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("three short words")))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	events := make([]admission.UsageEvent, 8)
	for _, e := range events[:queue.Drain(events)] {
		fmt.Println("billed", e.Units)
	}
	// Output:
	// 200 done
	// 200 done
	// 429 request_rate_limited
	// billed 7
	// billed 7
}

// A worker pool hands jobs from the goroutine that admitted them to another.
// Until a job has started, whoever holds its handle can cancel it for nothing.
func Example_workerPool() {
	engine, slot, err := oneAccount(admission.SnapshotSpec{Costs: admission.CostTable{Fixed: 10}})
	if err != nil {
		fmt.Println(err)
		return
	}
	lease := newLease(100)
	slot.Replace(lease)
	queue, _ := admission.NewUsageQueue(64)
	gate, _ := admission.NewReservedGate(4, 1)
	jobs := make(chan admission.Pending, 2)
	var handles []admission.CancelHandle
	for range 2 {
		request, _ := engine.Begin(admission.Principal{1}, 1, at)
		room, _ := request.ReserveUsage(queue)
		pending, d := request.Admit(admission.Priced(admission.Quote{Units: 10, Items: 1}), &room, at)
		if d.Denied() {
			fmt.Println(d.Reason)
			return
		}
		handles = append(handles, pending.CancelHandle())
		jobs <- pending
	}
	close(jobs)
	if handles[0].Cancel() == admission.Cancelled { // its client has gone
		fmt.Println("cancelled, charged nothing")
	}
	var pool sync.WaitGroup
	pool.Go(func() {
		for pending := range jobs {
			ready, err := pending.AcquireCapacity(gate)
			if err != nil {
				fmt.Println(err)
				continue
			}
			running, err := ready.Commit(admission.RequestID{9}, at)
			if err != nil {
				fmt.Println(err)
				continue
			}
			charge, _ := running.Done()
			fmt.Println("ran for", charge.Units)
		}
	})
	pool.Wait()
	if handles[1].Cancel() == admission.Finished {
		fmt.Println("too late, the charge stands")
	}
	fmt.Println("left", lease.Remaining())
	// Output:
	// cancelled, charged nothing
	// admission: cancelled before execution started
	// ran for 10
	// too late, the charge stands
	// left 90
}

// A metered request holds the most that it may cost and settles what it did:
// an answer of a language model, priced elsewhere.
func Example_metered() {
	engine, slot, err := oneAccount(admission.SnapshotSpec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	lease := newLease(1000)
	slot.Replace(lease)
	queue, _ := admission.NewUsageQueue(64)
	request, _ := engine.Begin(admission.Principal{1}, 1, at)
	room, _ := request.ReserveUsage(queue)
	most := admission.Quote{Units: 800, Items: 1}
	pending, d := request.Admit(admission.Priced(most), &room, at)
	if d.Denied() {
		fmt.Println(d.Reason)
		return
	}
	fmt.Println("held 800, left", lease.Remaining())
	ready, _ := pending.AcquireCapacity(admission.NoGate{})
	running, err := ready.Commit(admission.RequestID{9}, at)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := running.Settle(120); err != nil { // tokens were counted
		fmt.Println(err)
	}
	charge, _ := running.Done()
	fmt.Println("charged", charge.Units, "left", lease.Remaining())
	// Output:
	// held 800, left 200
	// charged 120 left 880
}

// An elastic account goes on when no lease can fund it, up to a cap, and what
// it spends so is recorded. The cap does not refill.
func Example_elasticAccount() {
	engine, _, err := oneAccount(admission.SnapshotSpec{
		Enforcement: admission.Enforcement{Mode: admission.Elastic, OverageCap: 25},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	queue, _ := admission.NewUsageQueue(64)
	for range 3 { // the allocator can't be reached: there is no lease
		request, _ := engine.Begin(admission.Principal{1}, 1, at)
		room, _ := request.ReserveUsage(queue)
		pending, d := request.Admit(admission.Priced(admission.Quote{Units: 10, Items: 1}), &room, at)
		if d.Denied() {
			fmt.Println(d.Reason, "used", d.Used, "of", d.Limit)
			continue
		}
		ready, _ := pending.AcquireCapacity(admission.NoGate{})
		running, err := ready.Commit(admission.RequestID{9}, at)
		if err != nil {
			fmt.Println(err)
			return
		}
		charge, _ := running.Done()
		fmt.Println("charged", charge.Units, "of which unfunded", charge.Excess)
	}
	// Output:
	// charged 10 of which unfunded 10
	// charged 10 of which unfunded 10
	// overage_cap_exhausted used 20 of 25
}
