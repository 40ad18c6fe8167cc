package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/rows"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
)

type reconcileCommand struct {
	plane

	Account string `placeholder:"SLUG|ID" help:"Only this account; else all."`
	Format  string `enum:"table,csv,json,jsonl" default:"table" help:"table, csv, json or jsonl."`
}

// Help says what is compared.
func (reconcileCommand) Help() string {
	return "Asks a running platform, as an operator, to recompute each account's books from its rows, in one transaction an account: " +
		"deposited + overage must be balance + active grants + settled usage + settlement loss + expired + withdrawn; what the account " +
		"recorded must be what its budget days sum up to, and that what its events and the pruned ones do. " +
		"Exit code 0: all accounts hold. 1: one doesn't, or the platform does not answer. 2: the command line makes no sense."
}

// Run asks for every account and prints its books.
func (c reconcileCommand) Run(p *process) error {
	op, err := c.operate()
	if err != nil {
		return err
	}
	defer func() { _ = op.Close() }()
	var out rows.Writer
	if c.Format != "table" {
		if out, err = rows.New(c.Format, p.stdout, names(bookRow("", ledger.Holdings{}))); err != nil {
			return err
		}
	}
	accounts, broken := 0, 0
	check := func(a *adminv1.Account) error {
		id, err := ident.Parse(a.GetAccountId())
		if err != nil {
			return err
		}
		h, err := op.Conservation(p.ctx, id)
		if err != nil {
			return fmt.Errorf("recompute the books of %s: %w", a.GetSlug(), err)
		}
		accounts++
		if !h.Holds() {
			broken++
		}
		if out == nil {
			return book(p.stdout, a.GetSlug(), h)
		}
		return out.Row(bookRow(a.GetSlug(), h))
	}
	var only ident.ID
	if c.Account != "" {
		a, err := op.account(p.ctx, c.Account)
		if err != nil {
			return err
		}
		if only, err = ident.Parse(a.GetAccountId()); err != nil {
			return err
		}
	}
	if err := op.each(p.ctx, only, check); err != nil {
		return fmt.Errorf("after %d accounts, %d of which don't hold: %w", accounts, broken, err)
	}
	if out != nil {
		if err := out.End(nil); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(p.stdout, "%d accounts, %d hold\n", accounts, accounts-broken)
	}
	if broken > 0 {
		return fmt.Errorf("the books of %d of %d accounts do not hold", broken, accounts)
	}
	return nil
}

// book prints one account's equation.
func book(out io.Writer, slug string, h ledger.Holdings) error {
	verdict, left, right := "holds", "?", "?"
	if !h.Holds() {
		verdict = "DOES NOT HOLD"
	}
	l, r, fits := h.Sides()
	if fits {
		left, right = fmt.Sprint(l), fmt.Sprint(r)
	} else {
		verdict += ": a term is negative or a side doesn't fit 63 bits"
	}
	_, err := fmt.Fprintf(out, "%s %s: %s\n  deposited %d + overage %d = %s\n"+
		"  balance %d + active grants %d + settled usage %d + settlement loss %d + expired %d + withdrawn %d = %s\n"+
		"  usage recorded %d; budget days %d; events %d + pruned %d\n",
		slug, h.Account, verdict, h.Deposited, h.Overage, left,
		h.Balance, h.ActiveGrants, h.SettledUsage, h.SettlementLoss, h.Expired, h.Withdrawn, right,
		h.UsageRecorded, h.DayUnits, h.EventUnits, h.PrunedUnits)
	for _, d := range h.Drift {
		if err == nil {
			_, err = fmt.Fprintf(out, "  drift: %s\n", d)
		}
	}
	return err
}

func bookRow(slug string, h ledger.Holdings) []rows.Cell {
	left, right := any(nil), any(nil)
	if l, r, fits := h.Sides(); fits {
		left, right = l, r
	}
	return []rows.Cell{
		{Name: "account", Value: slug},
		{Name: "account_id", Value: id(h.Account)},
		{Name: "holds", Value: h.Holds()},
		{Name: "deposited", Value: h.Deposited},
		{Name: "overage", Value: h.Overage},
		{Name: "left", Value: left},
		{Name: "balance", Value: h.Balance},
		{Name: "active_grants", Value: h.ActiveGrants},
		{Name: "settled_usage", Value: h.SettledUsage},
		{Name: "settlement_loss", Value: h.SettlementLoss},
		{Name: "expired", Value: h.Expired},
		{Name: "withdrawn", Value: h.Withdrawn},
		{Name: "right", Value: right},
		{Name: "usage_recorded", Value: h.UsageRecorded},
		{Name: "budget_days", Value: h.DayUnits},
		{Name: "events", Value: h.EventUnits},
		{Name: "pruned", Value: h.PrunedUnits},
		{Name: "drift", Value: strings.Join(h.Drift, "; ")},
	}
}
