package usage_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/runtime/usage"
)

// sink answers as it is told and remembers what it was sent.
type sink struct {
	mu      sync.Mutex
	batches [][]ledger.IngestEvent
	answer  func(events []ledger.IngestEvent) (ledger.IngestReport, error)
}

func (s *sink) Ingest(_ context.Context, events []ledger.IngestEvent) (ledger.IngestReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, append([]ledger.IngestEvent(nil), events...))
	if s.answer != nil {
		return s.answer(events)
	}
	return ledger.IngestReport{Accepted: len(events)}, nil
}

func (s *sink) set(answer func(events []ledger.IngestEvent) (ledger.IngestReport, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *sink) sent() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		n += len(b)
	}
	return n
}

var errDown = fault.New(fault.Unavailable, "DOWN", "the sink is gone")

func down([]ledger.IngestEvent) (ledger.IngestReport, error) { return ledger.IngestReport{}, errDown }

// world is a writer over a sink and an account that can always pay.
type world struct {
	*testing.T
	sink   *sink
	engine *admission.Engine
	writer *usage.Writer
	lease  admission.LeaseID
	logs   *bytes.Buffer
}

func inBubble(t *testing.T, o usage.Options, test func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, sink: &sink{}, lease: admission.LeaseID{9}, logs: &bytes.Buffer{}}
		var err error
		w.engine, err = admission.NewEngine(admission.Config{MaxPrincipals: 4})
		w.must(err)
		w.engine.AlwaysFresh()
		s, err := admission.NewAccountSnapshot(admission.StatusActive, admission.SnapshotSpec{Principal: admission.Principal{1}, AccountID: admission.AccountID{2}, KeyID: admission.KeyID{3}, Generation: 1})
		w.must(err)
		p, err := admission.NewPublishableSnapshot(s)
		w.must(err)
		w.engine.Install(p, time.Now())
		slot, _ := w.engine.LeaseSlot(admission.AccountID{2})
		l, err := admission.NewLocalLease(admission.LeaseSpec{LeaseID: w.lease, Fence: 7, Units: 1 << 40, ExpiresAt: time.Now().Add(time.Hour)})
		w.must(err)
		slot.Replace(l)
		o.Sink, o.Clock, o.Log = w.sink, clock.System{}, slog.New(slog.NewJSONHandler(w.logs, nil))
		w.writer, err = usage.New(o)
		w.must(err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.writer.Run(ctx) }()
		defer func() {
			cancel()
			w.must(<-ended)
		}()
		test(w)
	})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) pass(d time.Duration) {
	<-time.After(d) // virtual
	synctest.Wait()
}

func (w *world) want(what string, got, want int64) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %d, want %d", what, got, want)
	}
}

// charge runs one request to its end.
func (w *world) charge(units int64, note *usage.Note) admission.Reason {
	w.Helper()
	now := time.Now()
	r, _ := w.engine.Begin(admission.Principal{1}, 0, now)
	slot, denial := w.writer.Slot(r)
	if denial.Denied() {
		return denial.Reason
	}
	pending, denial := r.Admit(admission.Priced(admission.Quote{Units: admission.CostUnits(max(units, 1)), Items: 5}), &slot, now)
	if denial.Denied() {
		w.Fatal(denial.Reason)
	}
	ready, err := pending.AcquireCapacity(admission.NoGate{})
	w.must(err)
	id := ident.NewAt(now)
	c, err := ready.Commit(admission.RequestID(id), now)
	w.must(err)
	w.must(c.Settle(admission.CostUnits(units)))
	if note != nil {
		w.writer.Describe(id, *note)
	}
	_, err = c.Done()
	w.writer.Recorded(id, err == nil)
	w.must(err)
	return 0
}

func TestEventsCarryWhatIsKnown(t *testing.T) {
	inBubble(t, usage.Options{}, func(w *world) {
		d := ledger.Dimensions{Model: "m", PromptTokens: 1, CachedTokens: 2, CompletionTokens: 3, ReasoningTokens: -1}
		w.charge(40, &usage.Note{Dimensions: d})
		w.charge(2, nil)
		w.charge(0, &usage.Note{Unbilled: true})
		w.charge(0, &usage.Note{Dimensions: d})
		w.pass(time.Second)
		w.want("batches", int64(len(w.sink.batches)), 1)
		got := w.sink.batches[0]
		want := ledger.IngestEvent{
			Request: got[0].Request, Account: ident.ID{2}, Lease: ident.ID(w.lease), Fence: 7, Units: 40, Items: 5, Key: ident.ID{3},
			Dimensions: d, CommittedAt: got[0].CommittedAt,
		}
		if len(got) != 3 || got[0] != want {
			t.Errorf("%+v, want %+v and two more", got, want)
		}
		if none := (ledger.Dimensions{PromptTokens: -1, CachedTokens: -1, CompletionTokens: -1, ReasoningTokens: -1}); got[1].Dimensions != none || got[2].Units != 0 {
			t.Errorf("%+v", got[1:])
		}
		s := w.writer.Stats()
		w.want("accepted", s.Accepted, 3)
		w.want("unbilled", s.Unbilled, 1)
		w.want("depth", s.Unaccounted, 0)
	})
}

// TestOutageLosesNothing: what is recorded waits, the queue sheds at zero
// charge, and every event is delivered once the sink answers again.
func TestOutageLosesNothing(t *testing.T) {
	inBubble(t, usage.Options{Capacity: 8, MaxBatch: 4}, func(w *world) {
		w.sink.set(down)
		for range 3 {
			w.charge(1, nil)
		}
		w.pass(time.Minute)
		s := w.writer.Stats()
		w.want("events waiting", s.Unaccounted, 3)
		if s.IngestAge < 50*time.Second || s.Failures < 20 || s.Failures > 60 {
			t.Errorf("%+v", s)
		}
		shed := 0
		for range 20 {
			if r := w.charge(1, nil); r == admission.AccountingBackpressure {
				shed++
			}
		}
		if s = w.writer.Stats(); s.Shed != int64(shed) || shed == 0 || !w.writer.Full() {
			t.Errorf("%d shed, %+v", shed, s)
		}
		w.sink.set(nil)
		w.pass(5 * time.Second)
		s = w.writer.Stats()
		w.want("accepted", s.Accepted, int64(23-shed))
		w.want("depth", s.Unaccounted, 0)
		w.want("age", int64(s.IngestAge), 0)
	})
}

// TestLostAnswersAreRepeated: the second time they are duplicates.
func TestLostAnswersAreRepeated(t *testing.T) {
	inBubble(t, usage.Options{}, func(w *world) {
		first := true
		w.sink.set(func(events []ledger.IngestEvent) (ledger.IngestReport, error) {
			if first {
				first = false
				return ledger.IngestReport{}, errDown
			}
			return ledger.IngestReport{Duplicate: len(events)}, nil
		})
		w.writer.Follow(ident.ID(w.lease))
		w.charge(3, nil)
		w.charge(4, nil)
		w.pass(time.Second)
		s := w.writer.Stats()
		w.want("duplicate", s.Duplicate, 2)
		w.want("delivered", w.writer.Delivered(ident.ID(w.lease)), 7)
		if b := w.sink.batches; len(b) != 2 || len(b[1]) != 2 || b[0][0] != b[1][0] || b[0][1] != b[1][1] {
			t.Errorf("%+v", b)
		}
		w.writer.Unfollow(ident.ID(w.lease))
		w.want("delivered of a forgotten one", w.writer.Delivered(ident.ID(w.lease)), 0)
	})
}

func TestRejectionsAreCountedAndEndTheEvent(t *testing.T) {
	inBubble(t, usage.Options{}, func(w *world) {
		w.sink.set(func(events []ledger.IngestEvent) (ledger.IngestReport, error) {
			return ledger.IngestReport{Accepted: len(events) - 1, Rejected: []ledger.Rejection{{Request: events[0].Request, Reason: ledger.RejectedNoCapacity}}, Unattributed: 1}, nil
		})
		w.writer.Follow(ident.ID(w.lease))
		w.charge(3, nil)
		w.charge(4, nil)
		w.pass(time.Second)
		s := w.writer.Stats()
		w.want("rejected", s.Rejected[ledger.RejectedNoCapacity], 1)
		w.want("rejected in all", s.RejectedTotal(), 1)
		w.want("reasons", int64(len(s.Rejected)), 7)
		w.want("unattributed", s.Unattributed, 1)
		w.want("delivered", w.writer.Delivered(ident.ID(w.lease)), 7)
		if !strings.Contains(w.logs.String(), "no_capacity") {
			t.Error("nothing was logged")
		}
	})
}

// TestOneFaultyEventHoldsUpNobody: a batch that is refused as such is repeated
// event by event, across an outage too, and none is sent again that has ended.
func TestOneFaultyEventHoldsUpNobody(t *testing.T) {
	inBubble(t, usage.Options{}, func(w *world) {
		fails := 0
		w.sink.set(func(events []ledger.IngestEvent) (ledger.IngestReport, error) {
			for _, e := range events {
				if e.Units == 13 {
					return ledger.IngestReport{}, fault.New(fault.Invalid, "BAD", "bad")
				}
			}
			if len(events) == 1 && events[0].Units == 14 && fails < 2 {
				fails++
				return ledger.IngestReport{}, errDown
			}
			return ledger.IngestReport{Accepted: len(events)}, nil
		})
		for _, units := range []int64{12, 13, 14, 15} {
			w.charge(units, nil)
		}
		w.pass(5 * time.Second)
		s := w.writer.Stats()
		w.want("accepted", s.Accepted, 3)
		w.want("refused", s.Rejected["refused"], 1)
		w.want("depth", s.Unaccounted, 0)
		counts := map[int64]int{}
		for _, b := range w.sink.batches[1:] {
			for _, e := range b {
				counts[e.Units]++
			}
		}
		if counts[12] != 1 || counts[13] != 1 {
			t.Errorf("sent again: %v", counts)
		}
	})
}

func TestNonsenseIsRetried(t *testing.T) {
	inBubble(t, usage.Options{}, func(w *world) {
		w.sink.set(func([]ledger.IngestEvent) (ledger.IngestReport, error) { return ledger.IngestReport{Accepted: 9}, nil })
		w.charge(1, nil)
		w.pass(time.Second)
		w.want("accepted", w.writer.Stats().Accepted, 0)
		w.sink.set(nil)
		w.pass(5 * time.Second)
		w.want("accepted", w.writer.Stats().Accepted, 1)
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, usage.Options{MaxBatch: 2}, func(w *world) {
		for range 5 {
			w.charge(1, nil)
		}
		w.must(w.writer.Drain(context.Background()))
		w.want("accepted", w.writer.Stats().Accepted, 5)
		w.sink.set(down)
		for range 5 {
			w.charge(1, nil)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err := w.writer.Drain(ctx)
		if fault.ReasonOf(err) != "USAGE_LEFT" || !strings.Contains(err.Error(), "5 charges") {
			t.Errorf("%v", err)
		}
		w.want("lost", w.writer.Stats().Lost, 5)
		w.want("still there", w.writer.Stats().Unaccounted, 5)
	})
}

// TestForgottenRequestsAreFoundAndLeaveNoNote: events that the engine emits by
// itself are delivered without being announced.
func TestForgottenRequestsAreFoundAndLeaveNoNote(t *testing.T) {
	inBubble(t, usage.Options{}, func(w *world) {
		now := time.Now()
		r, _ := w.engine.Begin(admission.Principal{1}, 0, now)
		slot, _ := w.writer.Slot(r)
		pending, denial := r.Admit(admission.Priced(admission.Quote{Units: 6, Items: 5}), &slot, now)
		if denial.Denied() {
			t.Fatal(denial.Reason)
		}
		ready, err := pending.AcquireCapacity(admission.NoGate{})
		w.must(err)
		id := ident.NewAt(now)
		c, err := ready.Commit(admission.RequestID(id), now)
		w.must(err)
		w.engine.Sweep(now, admission.Deadlines{Committed: time.Second})
		w.engine.Sweep(now.Add(2*time.Second), admission.Deadlines{Committed: time.Second})
		w.pass(2 * time.Second)
		w.want("accepted", w.writer.Stats().Accepted, 1)
		w.writer.Describe(id, usage.Note{})
		_, err = c.Done()
		if !errors.Is(err, admission.ErrSwept) {
			t.Error(err)
		}
		w.writer.Recorded(id, err == nil)
		w.pass(2 * time.Second)
		w.want("accepted", w.writer.Stats().Accepted, 1)
		w.want("sent", int64(w.sink.sent()), 1)
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []usage.Options{
		{},
		{Sink: &sink{}, Clock: clock.System{}, Log: slog.Default(), MaxBatch: ledger.MaxIngest + 1},
		{Sink: &sink{}, Clock: clock.System{}, Log: slog.Default(), Capacity: -1},
		{Sink: &sink{}, Clock: clock.System{}, Log: slog.Default(), Timeout: -1},
	} {
		if _, err := usage.New(o); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
