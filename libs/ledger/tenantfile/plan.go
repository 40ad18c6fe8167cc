package tenantfile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Store is what a file is planned against and applied to.
type Store interface {
	ledger.Admin
	ledger.SnapshotSource
	ledger.Policies
}

// Action is what a step does.
type Action string

// The actions. Skip does nothing: it says why something stays as it is. Refuse
// does nothing either and makes Apply report an error.
const (
	PutPolicy       Action = "put policy"
	CreateAccount   Action = "create account"
	SetLimits       Action = "set limits"
	SetBudget       Action = "set budget"
	PutKey          Action = "put key"
	RevokeKey       Action = "revoke key"
	PublishSnapshot Action = "publish snapshot"
	SetStatus       Action = "set status"
	Skip            Action = "skip"
	Refuse          Action = "refuse"
)

// Step is one mutation, or a note. Detail holds no secret and no digest.
type Step struct {
	Tenant string
	Action Action
	Detail string

	run func(ctx context.Context, by ledger.Actor) error
}

// Diff is what applying a file would do, in the order in which Apply does it.
type Diff struct{ Steps []Step }

// Mutations counts the steps that change the ledger.
func (d Diff) Mutations() int {
	n := 0
	for _, s := range d.Steps {
		if s.Action != Skip && s.Action != Refuse {
			n++
		}
	}
	return n
}

// String prints one line a step; equal differences print equal text.
func (d Diff) String() string {
	var b strings.Builder
	for _, s := range d.Steps {
		sign := "~"
		switch s.Action {
		case CreateAccount, PutKey, PutPolicy:
			sign = "+"
		case RevokeKey:
			sign = "-"
		case Skip, Refuse:
			sign = "!"
		case SetLimits, SetBudget, PublishSnapshot, SetStatus:
		}
		fmt.Fprintf(&b, "%s %s: %s %s\n", sign, s.Tenant, s.Action, s.Detail)
	}
	if d.Mutations() == 0 {
		b.WriteString("no changes\n")
	}
	return b.String()
}

// Plan reads the ledger and gives the difference to the file. It changes nothing.
func Plan(ctx context.Context, store Store, c *Compiled) (Diff, error) {
	p := &planner{store: store, accounts: map[string]ledger.Account{}}
	if err := p.list(ctx); err != nil {
		return Diff{}, err
	}
	declared := map[string]bool{}
	for _, t := range c.Tenants {
		declared[t.Slug] = true
	}
	for _, slug := range p.slugs {
		if a := p.accounts[slug]; !declared[slug] && a.Origin == ledger.ByConfig {
			if err := p.removed(ctx, a); err != nil {
				return Diff{}, err
			}
		}
	}
	for _, t := range c.Tenants {
		mark := len(p.build)
		err := p.tenant(ctx, t)
		if err != nil && (fault.KindOf(err) == fault.Unavailable || ctx.Err() != nil) {
			return Diff{}, err
		}
		if err != nil { // a row of this tenant that cannot be read stops nobody else
			p.build = p.build[:mark]
			p.add(t.Slug, Refuse, "its rows in the ledger cannot be read", func(context.Context, ledger.Actor) error { return err })
		}
	}
	return Diff{Steps: append(p.withdraw, p.build...)}, nil
}

// planner collects steps. What withdraws comes before what grants, over the
// whole file, so that a key can move from one tenant to another.
type planner struct {
	store           Store
	accounts        map[string]ledger.Account
	slugs           []string // sorted
	withdraw, build []Step
}

// list reads every account once.
func (p *planner) list(ctx context.Context) error {
	var after ident.ID
	for {
		page, err := p.store.ListAccounts(ctx, after, ledger.MaxPage)
		if err != nil {
			return fmt.Errorf("list accounts: %w", err)
		}
		for _, a := range page {
			p.accounts[a.Slug] = a
			p.slugs = append(p.slugs, a.Slug)
		}
		if len(page) < ledger.MaxPage {
			slices.Sort(p.slugs)
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// removed suspends a tenant that the file no longer declares and revokes its
// configured keys. It never closes it.
func (p *planner) removed(ctx context.Context, a ledger.Account) error {
	if a.Status == ledger.StatusActive {
		p.withdraw = append(p.withdraw, p.setStatus(a, ledger.StatusSuspended, "no longer declared"))
	}
	keys, err := p.store.AccountKeys(ctx, a.ID)
	if err != nil {
		return fmt.Errorf("list the keys of %s: %w", a.Slug, err)
	}
	for _, k := range keys {
		if k.Origin == ledger.ByConfig && k.RevokedAt.IsZero() {
			p.withdraw = append(p.withdraw, p.revoke(a.Slug, k, "no longer declared"))
		}
	}
	return nil
}

// tenant plans one declared tenant.
func (p *planner) tenant(ctx context.Context, t Tenant) error {
	a, exists := p.accounts[t.Slug]
	if exists && a.Origin != ledger.ByConfig {
		err := fault.New(fault.Conflict, "TENANT_NOT_CONFIGURED_HERE",
			fmt.Sprintf("tenant %s is an account that the %s created; configuration does not take it over", t.Slug, a.Origin))
		p.add(t.Slug, Refuse, err.Public, func(context.Context, ledger.Actor) error { return err })
		return nil
	}
	if exists && a.Status == ledger.StatusClosed {
		p.build = append(p.build, Step{Tenant: t.Slug, Action: Skip, Detail: "everything: the account is closed, which is final"})
		return nil
	}
	if err := p.policy(ctx, t); err != nil {
		return err
	}
	if !exists {
		a = p.create(t)
	} else {
		p.change(a, t)
	}
	if err := p.keys(ctx, a, t, exists); err != nil {
		return err
	}
	p.status(a, t)
	return nil
}

func (p *planner) policy(ctx context.Context, t Tenant) error {
	_, err := p.store.GetPolicy(ctx, t.PolicyRevision)
	switch {
	case err == nil:
		return nil
	case fault.KindOf(err) != fault.NotFound:
		return fmt.Errorf("read the policy of %s: %w", t.Slug, err)
	}
	p.add(t.Slug, PutPolicy, fmt.Sprintf("%x", t.PolicyRevision[:6]), func(ctx context.Context, by ledger.Actor) error {
		_, err := p.store.PutPolicy(ctx, by, t.PolicyBody)
		return err
	})
	return nil
}

// create plans a new account. It starts suspended: the status comes last.
func (p *planner) create(t Tenant) ledger.Account {
	a := ledger.Account{
		ID: ident.Account(t.Slug), Slug: t.Slug, DisplayName: t.DisplayName, Status: ledger.StatusSuspended,
		StatusSetBy: ledger.ByConfig, Origin: ledger.ByConfig, Class: ledger.Assured,
	}
	p.add(t.Slug, CreateAccount, limitsText(t.Limits)+", "+budgetText(t.Budget), func(ctx context.Context, by ledger.Actor) error {
		_, err := p.store.CreateAccount(ctx, by, ledger.NewAccount{
			ID: a.ID, Slug: a.Slug, DisplayName: a.DisplayName, Status: a.Status,
			Origin: a.Origin, Class: a.Class, Budget: t.Budget, Limits: t.Limits,
		})
		return err
	})
	return a
}

func (p *planner) change(a ledger.Account, t Tenant) {
	if a.Limits != t.Limits {
		p.add(t.Slug, SetLimits, limitsText(a.Limits)+" -> "+limitsText(t.Limits), func(ctx context.Context, by ledger.Actor) error {
			_, err := p.store.SetLimits(ctx, by, a.ID, t.Limits)
			return err
		})
	}
	var stored *ledger.BudgetSetting
	if a.Budget != nil {
		stored = &ledger.BudgetSetting{Period: a.Budget.Period, Allowance: a.Budget.Allowance}
	}
	if (stored == nil) != (t.Budget == nil) || (stored != nil && *stored != *t.Budget) {
		p.add(t.Slug, SetBudget, budgetText(stored)+" -> "+budgetText(t.Budget), func(ctx context.Context, by ledger.Actor) error {
			_, err := p.store.SetBudget(ctx, by, a.ID, t.Budget)
			return err
		})
	}
}

func (p *planner) status(a ledger.Account, t Tenant) {
	want := ledger.StatusSuspended
	if t.Enabled {
		want = ledger.StatusActive
	}
	switch {
	case a.Status == want:
	case want == ledger.StatusActive && a.StatusSetBy != ledger.ByConfig:
		p.build = append(p.build, Step{
			Tenant: t.Slug, Action: Skip,
			Detail: fmt.Sprintf("activation: suspended by the %s, whom configuration never overrules", a.StatusSetBy),
		})
	default:
		p.build = append(p.build, p.setStatus(a, want, "enabled: "+fmt.Sprint(t.Enabled)))
	}
}

func (p *planner) setStatus(a ledger.Account, s ledger.Status, why string) Step {
	return Step{
		Tenant: a.Slug, Action: SetStatus, Detail: fmt.Sprintf("%s -> %s (%s)", a.Status, s, why),
		run: func(ctx context.Context, by ledger.Actor) error {
			_, err := p.store.SetStatus(ctx, by, a.ID, s)
			return err
		},
	}
}

func (p *planner) add(tenant string, action Action, detail string, run func(context.Context, ledger.Actor) error) {
	p.build = append(p.build, Step{Tenant: tenant, Action: action, Detail: detail, run: run})
}

func limitsText(l ledger.Limits) string {
	return fmt.Sprintf("requests/min %s, tokens/min %s, concurrent %s",
		ceiling(l.RequestsPerMinute), ceiling(l.TokensPerMinute), ceiling(l.MaxConcurrent))
}

func ceiling(v int64) string {
	if v == 0 {
		return "unlimited"
	}
	return fmt.Sprint(v)
}

func budgetText(b *ledger.BudgetSetting) string {
	if b == nil {
		return "no budget ceiling"
	}
	return fmt.Sprintf("budget %d nano-USD a %s", b.Allowance, b.Period)
}
