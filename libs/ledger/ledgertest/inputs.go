package ledgertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func inputs() []guarantee {
	return []guarantee{
		{"a malformed Reserve is refused before anything changes", inputReserve},
		{"a malformed close refuses its batch before anything changes", inputClose},
		{"a malformed renewal is refused", inputRenew},
		{"malformed administration is refused before anything changes", inputAdmin},
		{"pages and passes have bounds", inputPages},
	}
}

func inputReserve(w *world) {
	acme := w.funded("acme", 100)
	w.unchanged("a malformed Reserve", func() {
		for what, spoil := range map[string]func(r *ledger.Reserve){
			"no request":      func(r *ledger.Reserve) { r.Request = ident.ID{} },
			"no holder":       func(r *ledger.Reserve) { r.Holder = ident.ID{} },
			"negative units":  func(r *ledger.Reserve) { r.Units = -1 },
			"prompt > units":  func(r *ledger.Reserve) { r.PromptUnits = r.Units + 1 },
			"negative prompt": func(r *ledger.Reserve) { r.PromptUnits = -1 },
			"negative tokens": func(r *ledger.Reserve) { r.Tokens = -1 },
			"prompt > tokens": func(r *ledger.Reserve) { r.PromptTokens = 1 },
			"negative ttl":    func(r *ledger.Reserve) { r.TTL = -time.Second },
			"long endpoint":   func(r *ledger.Reserve) { r.Endpoint = strings.Repeat("x", 33) },
			"long model":      func(r *ledger.Reserve) { r.Model = strings.Repeat("x", 257) },
			"endless ttl":     func(r *ledger.Reserve) { r.TTL = 1 << 62 },
		} {
			r := w.ask(acme, 10)
			spoil(&r)
			_, err := w.Ledger.Reserve(w.Context(), r)
			w.wantKind(err, fault.Invalid, what)
		}
	})
}

func inputClose(w *world) {
	acme := w.funded("acme", 100)
	g, good := w.granted(acme, 10), w.granted(acme, 10)
	w.unchanged("a malformed close", func() {
		for what, spoil := range map[string]func(c *ledger.Close){
			"no request":           func(c *ledger.Close) { c.Request = ident.ID{} },
			"no outcome":           func(c *ledger.Close) { c.Outcome = "" },
			"the sweep's outcome":  func(c *ledger.Close) { c.Outcome = ledger.Swept },
			"negative units":       func(c *ledger.Close) { c.Units = -1 },
			"units of a full":      func(c *ledger.Close) { c.Outcome = ledger.Full },
			"units of a release":   func(c *ledger.Close) { c.Outcome = ledger.Released },
			"negative fence":       func(c *ledger.Close) { c.Fence = -1 },
			"tokens below unknown": func(c *ledger.Close) { c.Dimensions.CompletionTokens = -2 },
			"long model":           func(c *ledger.Close) { c.Dimensions.Model = strings.Repeat("x", 257) },
		} {
			c := closing(acme, g, ledger.Settled, 5)
			spoil(&c)
			_, err := w.Ledger.CloseBatch(w.Context(), []ledger.Close{closing(acme, good, ledger.Settled, 1), c})
			w.wantKind(err, fault.Invalid, what)
		}
		_, err := w.Ledger.CloseBatch(w.Context(), make([]ledger.Close, ledger.MaxBatch+1))
		w.wantKind(err, fault.Invalid, "a batch above the bound")
	})
}

func inputRenew(w *world) {
	acme := w.funded("acme", 100)
	ref := refTo(acme, w.granted(acme, 10))
	w.unchanged("a malformed renewal", func() {
		for what, r := range map[string]ledger.Renewal{
			"no holder":    {TTL: ttl, Reservations: []ledger.ReservationRef{ref}},
			"negative ttl": {Holder: w.holder, TTL: -ttl, Reservations: []ledger.ReservationRef{ref}},
			"too many":     {Holder: w.holder, TTL: ttl, Reservations: make([]ledger.ReservationRef, ledger.MaxBatch+1)},
		} {
			_, err := w.Ledger.Renew(w.Context(), r)
			w.wantKind(err, fault.Invalid, what)
		}
	})
}

func inputAdmin(w *world) {
	acme := w.funded("acme", 100)
	ctx, by := w.Context(), w.operator()
	create := func(a ledger.NewAccount) func() error {
		return func() error { _, err := w.Ledger.CreateAccount(ctx, by, a); return err }
	}
	limits := func(l ledger.Limits) func() error {
		return func() error { _, err := w.Ledger.SetLimits(ctx, by, acme.id, l); return err }
	}
	w.unchanged("malformed administration", func() {
		for what, call := range map[string]func() error{
			"no slug":            create(ledger.NewAccount{Origin: ledger.ByOperator}),
			"upper case slug":    create(ledger.NewAccount{Slug: "Acme", Origin: ledger.ByOperator}),
			"slug with a slash":  create(ledger.NewAccount{Slug: "a/b", Origin: ledger.ByOperator}),
			"slug with a dash":   create(ledger.NewAccount{Slug: "-a", Origin: ledger.ByOperator}),
			"long slug":          create(ledger.NewAccount{Slug: strings.Repeat("a", 65), Origin: ledger.ByOperator}),
			"long name":          create(ledger.NewAccount{Slug: "b", DisplayName: strings.Repeat("a", 129), Origin: ledger.ByOperator}),
			"negative deposit":   create(ledger.NewAccount{Slug: "b", Deposit: -1, Origin: ledger.ByOperator}),
			"unknown status":     create(ledger.NewAccount{Slug: "b", Status: "on", Origin: ledger.ByOperator}),
			"unknown class":      create(ledger.NewAccount{Slug: "b", Class: "gold", Origin: ledger.ByOperator}),
			"negative limit":     create(ledger.NewAccount{Slug: "b", Limits: ledger.Limits{MaxConcurrent: -1}, Origin: ledger.ByOperator}),
			"unknown period":     create(ledger.NewAccount{Slug: "b", Budget: &ledger.BudgetSetting{Period: "week", Allowance: 1}, Origin: ledger.ByOperator}),
			"negative allowance": create(ledger.NewAccount{Slug: "b", Budget: &ledger.BudgetSetting{Period: ledger.Daily, Allowance: -1}, Origin: ledger.ByOperator}),
			"zero deposit":       func() error { _, err := w.Ledger.Deposit(ctx, by, acme.id, 0, "x"); return err },
			"negative top-up":    func() error { _, err := w.Ledger.Deposit(ctx, by, acme.id, -5, "x"); return err },
			"negative withdraw":  func() error { _, err := w.Ledger.Withdraw(ctx, by, acme.id, -5, "x"); return err },
			"negative limits":    limits(ledger.Limits{TokensPerMinute: -1}),
			"status":             func() error { _, err := w.Ledger.SetStatus(ctx, by, acme.id, "gone"); return err },
			"key without a name": func() error {
				k := newKey(acme.id, "acme", "k7")
				k.Name = ""
				_, err := w.Ledger.PutKey(ctx, by, k)
				return err
			},
			"principal not of its digest": func() error {
				k := newKey(acme.id, "acme", "k7")
				k.Principal[0]++
				_, err := w.Ledger.PutKey(ctx, by, k)
				return err
			},
		} {
			w.wantKind(call(), fault.Invalid, what)
		}
	})
}

func inputPages(w *world) {
	ctx := w.Context()
	acme := w.funded("acme", 1)
	for i := range 3 {
		w.funded(fmt.Sprintf("more%d", i), 1)
	}
	for _, limit := range []int{-1, ledger.MaxPage + 1} {
		for what, call := range map[string]func() (int, error){
			"accounts": func() (int, error) { p, err := w.Ledger.ListAccounts(ctx, ident.ID{}, limit); return len(p), err },
			"keys":     func() (int, error) { p, err := w.Ledger.ListKeys(ctx, ident.ID{}, limit); return len(p.Keys), err },
			"snapshots": func() (int, error) {
				p, err := w.Ledger.ListSnapshots(ctx, ledger.Principal{}, limit)
				return len(p.Snapshots), err
			},
			"events": func() (int, error) {
				p, err := w.Ledger.UsageEvents(ctx, acme.id, ledger.UsageCursor{}, limit)
				return len(p), err
			},
			"holdings": func() (int, error) {
				p, err := w.Ledger.ConservationPage(ctx, ident.ID{}, limit)
				return len(p), err
			},
		} {
			_, err := call()
			w.wantKind(err, fault.Invalid, fmt.Sprintf("%s with limit %d", what, limit))
		}
	}
	all, err := w.Ledger.ListAccounts(ctx, ident.ID{}, 0)
	w.must(err)
	same(w, "accounts under the default limit", len(all), 4)
}

func leaseInputs(w *world) {
	acme := w.funded("acme", 100)
	l := w.leased(acme, 40, 40)
	ctx := w.Context()
	acquire := func(spoil func(a *ledger.Acquire)) error {
		a := w.wish(acme, 10)
		spoil(&a)
		_, err := w.Ledger.Acquire(ctx, a)
		return err
	}
	consolidate := func(spoil func(c *ledger.Consolidate)) error {
		c := ledger.Consolidate{Lease: l.ID, Fence: l.Fence, Unspent: 40, ID: ident.New(), Want: 10, TTL: leaseTTL}
		spoil(&c)
		_, err := w.Ledger.Consolidate(ctx, c)
		return err
	}
	release := func(r ledger.Release) error { _, err := w.Ledger.Release(ctx, r); return err }
	extend := func(e ledger.Extend) error { _, err := w.Ledger.Extend(ctx, e); return err }
	w.unchanged("a malformed call", func() {
		for what, err := range map[string]error{
			"no acquire id":       acquire(func(a *ledger.Acquire) { a.ID = ident.ID{} }),
			"nothing wanted":      acquire(func(a *ledger.Acquire) { a.Want = 0 }),
			"negative want":       acquire(func(a *ledger.Acquire) { a.Want = -1 }),
			"no ttl":              acquire(func(a *ledger.Acquire) { a.TTL = 0 }),
			"long ttl":            acquire(func(a *ledger.Acquire) { a.TTL = ledger.MaxLeaseTTL + 1 }),
			"negative unspent":    release(ledger.Release{Lease: l.ID, Fence: l.Fence, Unspent: -1}),
			"no fence":            release(ledger.Release{Lease: l.ID}),
			"no lease":            release(ledger.Release{Fence: 1}),
			"no attempt":          consolidate(func(c *ledger.Consolidate) { c.ID = ident.ID{} }),
			"negative needed":     consolidate(func(c *ledger.Consolidate) { c.Needed = -1 }),
			"no want":             consolidate(func(c *ledger.Consolidate) { c.Want = 0 }),
			"an extension of 0":   extend(ledger.Extend{Lease: l.ID, Fence: l.Fence}),
			"too long extension":  extend(ledger.Extend{Lease: l.ID, Fence: l.Fence, TTL: ledger.MaxLeaseTTL + 1}),
			"extension, no fence": extend(ledger.Extend{Lease: l.ID, TTL: leaseTTL}),
		} {
			w.wantKind(err, fault.Invalid, what)
		}
	})
}
