package chain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/receipt/receipttest"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

const (
	slug = "acme"
	dir  = "/root/account/writer"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func options(d disk.Disk) Options {
	return Options{
		Dir: dir, Account: ident.Account(slug), AnchorEvery: 1000, Disk: d, Clock: clock.At(start),
		Log: slog.New(slog.DiscardHandler), Syncs: make(chan struct{}, 16),
	}
}

func mustOpen(t *testing.T, o Options) *Chain {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

func mustClose(t *testing.T, c *Chain) {
	t.Helper()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func request(i int) ident.ID { return ident.Derive(fmt.Sprintf("request %d", i)) }

// entry is an allow; every fifth is a refusal, every seventh waits.
func entry(i int) *receipt.Entry {
	e := &receipt.Entry{
		Account: ident.Account(slug), Slug: slug, Request: request(i), Kind: receipt.Allow,
		Model: "mock/model", CallDigest: sha256.Sum256([]byte{byte(i), byte(i >> 8)}), At: start.Add(time.Duration(i) * time.Second),
	}
	return e
}

func outcome(decision string) *receipt.Entry {
	reply := receipt.Digest(sha256.Sum256([]byte(decision)))
	return &receipt.Entry{
		Account: ident.Account(slug), Request: ident.Derive(decision), Kind: receipt.Outcome,
		Decision: decision, Status: receipt.Completed, RequestSHA: &reply, ResponseSHA: &reply, At: start,
	}
}

func appendOne(t *testing.T, c *Chain, e *receipt.Entry) (string, error) {
	t.Helper()
	p, err := c.Submit(e)
	if err != nil {
		return "", err
	}
	return p.Wait(t.Context())
}

func mustAppend(t *testing.T, c *Chain, e *receipt.Entry) string {
	t.Helper()
	id, err := appendOne(t, c, e)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func checkIndependently(t *testing.T, files map[string]string, when string) []receipttest.Entry {
	t.Helper()
	entries, err := receipttest.Check([]byte(files[dir+"/receipts.jsonl"]), []byte(files[dir+"/anchor.jsonl"]), []byte(files[dir+"/signing.pub"]))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	return entries
}

// TestChainsOfRandomInputsVerifyIndependently writes whatever a gateway could
// say, restarting in between, and reads it with a verifier that shares no code.
func TestChainsOfRandomInputsVerifyIndependently(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newMemory(0)
		o := options(m)
		o.AnchorEvery = rapid.Uint64Range(1, 8).Draw(rt, "anchor every")
		o.SinceAnchor = rapid.Bool().Draw(rt, "since anchor")
		c := mustOpen(t, o)
		var want []receipttest.Entry
		var open []string
		text := rapid.StringN(1, 20, 200).Filter(func(s string) bool { return strings.ToValidUTF8(s, "") == s })
		digest := rapid.SliceOfN(rapid.Byte(), 32, 32)
		draw := func() *receipt.Digest {
			if rapid.IntRange(0, 3).Draw(rt, "null") == 0 {
				return nil
			}
			d := receipt.Digest(digest.Draw(rt, "digest"))
			return &d
		}
		for i := range rapid.IntRange(0, 25).Draw(rt, "entries") {
			e := entry(i)
			e.Slug, e.Model = text.Draw(rt, "slug"), text.Draw(rt, "model")
			w := receipttest.Entry{IssuedAt: e.At.Format(time.RFC3339)}
			switch rapid.IntRange(0, 4).Draw(rt, "kind") {
			case 0:
				e.Kind, e.Codes = receipt.Deny, []string{rapid.StringMatching(`[a-z_0-9]{1,64}`).Draw(rt, "code")}
				w.Verdict, w.Codes = "deny", []string{"EXTERNAL_DENY", strings.ToUpper(e.Codes[0])}
			case 1:
				e.Kind, w.Verdict, w.Codes = receipt.AwaitHumanApproval, "await_human_approval", []string{"APPROVAL_REQUIRED"}
			case 2:
				if len(open) > 0 {
					n := rapid.IntRange(0, len(open)-1).Draw(rt, "which")
					e.Kind, e.Decision, e.Status = receipt.Outcome, open[n], receipt.Failed
					open = append(open[:n:n], open[n+1:]...)
					e.RequestSHA, e.ResponseSHA = draw(), draw()
					w.Answers, w.Status = e.Decision, "failed"
					if e.RequestSHA != nil {
						w.Request = e.RequestSHA.String()
					}
					if e.ResponseSHA != nil {
						w.Response = e.ResponseSHA.String()
					}
					break
				}
				fallthrough
			default:
				copy(e.CallDigest[1:], digest.Draw(rt, "call"))
				e.CallDigest[0] = 1
				w.Verdict, w.Codes, w.CallDigest = "allow", []string{"SAFE_READ"}, e.CallDigest.String()
			}
			w.ID = mustAppend(t, c, e)
			if e.Kind == receipt.Allow {
				open = append(open, w.ID)
			}
			want = append(want, w)
			switch rapid.IntRange(0, 9).Draw(rt, "then") {
			case 0:
				mustClose(t, c)
				c = mustOpen(t, o)
			case 1:
				c.Anchor()
			}
		}
		mustClose(t, c)
		got := checkIndependently(t, m.dump(), "at the end")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("got  %v\nwant %v", got, want)
		}
		files := m.dump()
		if len(want) > 0 && !strings.Contains(files[dir+"/anchor.jsonl"], want[len(want)-1].ID) {
			rt.Fatal("the end is not anchored")
		}
	})
}

// TestARepeatGetsTheSameReceipt, in the same process and after a restart, when
// the repeat's time is another, and for outcomes that memory has forgotten.
func TestARepeatGetsTheSameReceipt(t *testing.T) {
	t.Parallel()
	m := newMemory(0)
	o := options(m)
	c := mustOpen(t, o)
	kinds := map[string]*receipt.Entry{}
	for i, k := range []receipt.Kind{receipt.Allow, receipt.Deny, receipt.AwaitHumanApproval} {
		e := entry(i)
		e.Kind, e.Codes = k, []string{"rate_limited"}
		kinds[mustAppend(t, c, e)] = e
	}
	// One request may wait first and be allowed later: kinds are apart.
	allowed := entry(2)
	allow := mustAppend(t, c, allowed)
	kinds[allow] = allowed
	kinds[mustAppend(t, c, outcome(allow))] = outcome(allow)
	if len(kinds) != 5 {
		t.Fatalf("%d receipts for 5 entries", len(kinds))
	}
	again := func(when string) {
		t.Helper()
		for id, e := range kinds {
			repeat := *e
			repeat.At = repeat.At.Add(time.Hour)
			if got, err := appendOne(t, c, &repeat); err != nil || got != id {
				t.Errorf("%s, %s: %s %v, want %s", when, e.Kind, got, err, id)
			}
		}
		if n := c.Stats().Entries; n != 5 {
			t.Errorf("%s: %d entries", when, n)
		}
	}
	again("at once")
	mustClose(t, c)
	c = mustOpen(t, o)
	again("after a restart")
	// What memory lets go is looked up in the log.
	mustClose(t, c)
	c = mustOpen(t, o)
	c.answers, c.open = newWindow[id, id](1), newWindow[id, struct{}](1)
	again("forgotten")
}

func TestAnOutcomeNeedsAnAllowOfThisChain(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, options(newMemory(0)))
	deny := entry(0)
	deny.Kind, deny.Codes = receipt.Deny, []string{"x"}
	for _, decision := range []string{"receipt:sha3-256:" + strings.Repeat("0", 64), mustAppend(t, c, deny)} {
		if _, err := appendOne(t, c, outcome(decision)); fault.KindOf(err) != fault.Invalid || fault.ReasonOf(err) != receipt.ReasonInvalid {
			t.Errorf("%s: %v", decision, err)
		}
	}
	if c.Stopped() != nil || c.Stats().Entries != 1 {
		t.Errorf("a wrong entry changed the chain: %+v", c.Stats())
	}
	mustAppend(t, c, entry(1))
}

// TestAFailedWriteStopsTheChain until a restart, and its anchor with it.
func TestAFailedWriteStopsTheChain(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"write", "sync"} {
		m := newMemory(1)
		c := mustOpen(t, options(m))
		first := mustAppend(t, c, entry(0))
		m.mu.Lock()
		m.failAt = m.steps
		if how == "sync" {
			m.failAt++
		}
		m.mu.Unlock()
		_, err := appendOne(t, c, entry(1))
		if fault.KindOf(err) != fault.Unavailable || fault.ReasonOf(err) != receipt.ReasonUnavailable {
			t.Fatalf("%s: %v", how, err)
		}
		m.mu.Lock()
		m.off, m.failAt = false, -1 // the disk is well again: the chain stays stopped
		m.mu.Unlock()
		if _, err := appendOne(t, c, entry(2)); fault.ReasonOf(err) != receipt.ReasonUnavailable {
			t.Errorf("%s: a stopped chain took an entry: %v", how, err)
		}
		if s := c.Stats(); !s.Stopped || s.Written != 1 || s.Failures != 2 || s.Head != first {
			t.Errorf("%s: %+v", how, s)
		}
		if err := c.Close(t.Context()); err == nil || m.dump()[dir+"/anchor.jsonl"] != "" {
			t.Errorf("%s: a stopped chain was closed well (%v) or anchored", how, err)
		}
	}
}

// TestATamperedLogIsNotAnchored: what the disk has must be what was written.
func TestATamperedLogIsNotAnchored(t *testing.T) {
	t.Parallel()
	for how, tamper := range map[string]func([]byte) []byte{
		"a changed byte":    func(b []byte) []byte { b[10] ^= 1; return b },
		"a cut end":         func(b []byte) []byte { return b[:len(b)-5] },
		"something behind":  func(b []byte) []byte { return append(b, "{}\n"...) },
		"another last line": func(b []byte) []byte { b[len(b)-30] ^= 1; return b },
	} {
		m := newMemory(0)
		c := mustOpen(t, options(m))
		mustAppend(t, c, entry(0))
		m.mu.Lock()
		n := m.files[dir+"/receipts.jsonl"]
		n.data = tamper(append([]byte(nil), n.data...))
		m.mu.Unlock()
		if err := c.Close(t.Context()); err == nil || m.dump()[dir+"/anchor.jsonl"] != "" {
			t.Errorf("%s: anchored, %v", how, err)
		}
	}
}

// stuck is a disk whose syncs wait.
type stuck struct {
	*memory
	entered, release chan struct{}
}

type stuckFile struct {
	disk.File
	s *stuck
}

func (s *stuck) Open(name string) (disk.File, error) {
	f, err := s.memory.Open(name)
	return stuckFile{f, s}, err
}

func (f stuckFile) Sync() error {
	f.s.entered <- struct{}{}
	<-f.s.release
	return f.File.Sync()
}

// letSync lets one sync through, which must come.
func (s *stuck) letSync(t *testing.T, before func()) {
	t.Helper()
	select {
	case <-s.entered:
	case <-time.After(10 * time.Second):
		t.Error("no sync came")
		return
	}
	before()
	s.release <- struct{}{}
}

// TestAFullQueueRefusesAndGroupsCommit: while one sync is under way, 1024
// entries wait and the next is refused; then all of them share one sync.
func TestAFullQueueRefusesAndGroupsCommit(t *testing.T) {
	t.Parallel()
	s := &stuck{newMemory(0), make(chan struct{}), make(chan struct{})}
	o := options(s)
	o.AnchorEvery = 1 << 40
	c := mustOpen(t, o)
	first, err := c.Submit(entry(0))
	if err != nil {
		t.Fatal(err)
	}
	waiting := make([]*Pending, 0, queueMax)
	s.letSync(t, func() {
		for i := range queueMax {
			p, err := c.Submit(entry(i + 1))
			if err != nil {
				t.Fatal(i, err)
			}
			waiting = append(waiting, p)
		}
		if _, err := c.Submit(entry(queueMax + 1)); fault.ReasonOf(err) != receipt.ReasonUnavailable {
			t.Fatalf("a full queue took an entry: %v", err)
		}
		// A caller that gives up leaves its entry to be written, and finds it.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := waiting[7].Wait(gone); fault.ReasonOf(err) != receipt.ReasonUnavailable {
			t.Fatalf("waited without a caller: %v", err)
		}
	})
	if _, err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.letSync(t, func() {}) // one sync for all that waited
	ids := map[string]bool{}
	for i, p := range waiting {
		if i == 7 {
			continue
		}
		id, err := p.Wait(t.Context())
		if err != nil || ids[id] {
			t.Fatal(i, id, err)
		}
		ids[id] = true
	}
	if st := c.Stats(); st.Full != 1 || st.Entries != queueMax+1 || st.Stopped {
		t.Errorf("%+v", st)
	}
	if id := mustAppend(t, c, entry(8)); ids[id] { // a repeat: no sync is needed
		t.Error("another entry's receipt")
	}
	go s.letSync(t, func() {}) // the last anchor, at the close
	mustClose(t, c)
}

// TestAtOnceFromManyCallers: concurrent callers and repeats, one chain.
func TestAtOnceFromManyCallers(t *testing.T) {
	t.Parallel()
	m := newMemory(0)
	o := options(m)
	o.AnchorEvery = 50
	c := mustOpen(t, o)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 20 {
				allow, err := appendOne(t, c, entry(i*16+g/2)) // two callers tell the same
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := appendOne(t, c, outcome(allow)); err != nil {
					t.Error(err)
				}
				c.Anchor()
			}
		})
	}
	wg.Wait()
	mustClose(t, c)
	if n := len(checkIndependently(t, m.dump(), "at the end")); n != 2*20*8 {
		t.Errorf("%d entries, want %d", n, 2*20*8)
	}
}

func TestWindowForgetsTheOldest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 20).Draw(rt, "limit")
		w := newWindow[int, int](limit)
		var live []int
		for i := range rapid.IntRange(0, 3000).Draw(rt, "puts") {
			w.put(i, -i)
			live = append(live, i)
			if len(live) > limit {
				live = live[1:]
			}
			if i%3 == 0 && len(live) > 1 {
				w.delete(live[1])
				live = append(live[:1:1], live[2:]...)
			}
		}
		if len(w.m) != len(live) || len(w.order) > 2*limit+1025 {
			rt.Fatalf("%d kept, want %d; %d in order", len(w.m), len(live), len(w.order))
		}
		for _, k := range live {
			if v, ok := w.get(k); !ok || v != -k {
				rt.Fatalf("%d: %d %v", k, v, ok)
			}
		}
	})
}
