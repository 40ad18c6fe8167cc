package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tollgate-platform/tollgate/cmd/tollgate/internal/rows"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	adminv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1"
)

type usageCommand struct {
	plane

	Account  string   `placeholder:"SLUG|ID" help:"Only this account; else all."`
	Key      string   `placeholder:"ID" help:"Only this key."`
	Model    string   `help:"Only this model."`
	Source   string   `enum:",reserved,leased,overage" default:"" help:"Only what this funded: reserved, leased or overage (nothing)."`
	Since    string   `placeholder:"TIME" help:"Committed at or after: 2026-11-30, 2026-11-30T12:00:00Z, or 24h and 7d ago."`
	Until    string   `placeholder:"TIME" help:"Committed before; else until now."`
	By       []string `enum:"account,key,model,source,hour,day,budget-day" help:"What to tell apart: account, key, model, source, hour or day (UTC, by the time of commit); or budget-day alone."`
	Events   bool     `help:"Print the usage events themselves."`
	Format   string   `enum:"table,csv,json,jsonl" default:"table" help:"table, csv, json or jsonl."`
	Progress bool     `help:"Tell the progress on stderr, also where it is no terminal."`
}

// Help says what the figures are.
func (usageCommand) Help() string {
	return "Asks a running platform, as an operator. Units are nano-USD for LLM accounts; usd has them as dollars. " +
		"Tokens that a provider did not report are counted as unreported, never as zero. Hours and days are those of the commit; " +
		"budget days add up to the account exactly. Exit code 1 if the platform does not answer, 2 if the command line makes no sense."
}

// Run asks and prints.
func (c usageCommand) Run(p *process) error {
	by, budgetDay, err := c.groups()
	if err != nil {
		return &exitError{2, err}
	}
	op, err := c.operate()
	if err != nil {
		return err
	}
	defer func() { _ = op.Close() }()
	q, err := c.query(p.ctx, op, clock.System{}.Now())
	if err != nil {
		return err
	}
	tell := c.progress(p)
	defer tell.end()
	switch {
	case c.Events:
		return c.events(p, op, q, tell)
	case budgetDay:
		return c.days(p, op, q)
	}
	return c.sums(p, op, q, by, tell)
}

// groups reads --by.
func (c usageCommand) groups() (by ledger.UsageGroups, budgetDay bool, err error) {
	has := func(name string) bool { return slices.Contains(c.By, name) }
	by = ledger.UsageGroups{Account: has("account"), Key: has("key"), Model: has("model"), Source: has("source")}
	switch {
	case c.Events && len(c.By) > 0:
		return by, false, errors.New("--by: does not go with --events, which are not added up")
	case has("hour") && has("day"):
		return by, false, errors.New("--by: hour and day exclude each other")
	case has("hour"):
		by.Bucket = time.Hour
	case has("day"):
		by.Bucket = 24 * time.Hour
	case has("budget-day"):
		if len(c.By) > 1 || c.Key != "" || c.Model != "" || c.Source != "" || c.Since != "" || c.Until != "" {
			return by, false, errors.New("--by budget-day: takes --account only; the other flags select by the time and kind of events")
		}
		return by, true, nil
	}
	return by, false, nil
}

// query reads what is selected.
func (c usageCommand) query(ctx context.Context, op *operator, now time.Time) (q ledger.UsageQuery, err error) {
	q = ledger.UsageQuery{Model: c.Model, Source: c.Source}
	if q.Since, err = instant(c.Since, now); err != nil {
		return q, &exitError{2, fmt.Errorf("--since: %w", err)}
	}
	if q.Until, err = instant(c.Until, now); err != nil {
		return q, &exitError{2, fmt.Errorf("--until: %w", err)}
	}
	if c.Key != "" {
		if q.Key, err = ident.Parse(c.Key); err != nil {
			return q, &exitError{2, fmt.Errorf("--key: %w", err)}
		}
	}
	if c.Account != "" {
		a, err := op.account(ctx, c.Account)
		if err != nil {
			return q, err
		}
		if q.Account, err = ident.Parse(a.GetAccountId()); err != nil {
			return q, err
		}
	}
	return q, nil
}

// instant reads a time: a day, an instant, or how long ago. Empty is none.
func instant(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	ago := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d < 1_000_000*time.Hour/24 {
			ago = (24 * d).String()
		}
	}
	if d, err := time.ParseDuration(ago); err == nil && d > 0 {
		return now.UTC().Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("must be a day like 2026-11-30, an instant like 2026-11-30T12:00:00Z, or how long ago like 24h or 7d, not %q", text)
}

// sums prints sums.
func (c usageCommand) sums(p *process, op *operator, q ledger.UsageQuery, by ledger.UsageGroups, tell *progress) error {
	var (
		fold  ledger.UsageFold
		after ledger.UsagePlace
		total ledger.UsageSum
	)
	for more := true; more; {
		page, err := op.UsageSums(p.ctx, q, by, after)
		if err != nil {
			return fmt.Errorf("add up usage: %w", err)
		}
		if q.Until.IsZero() { // further pages are of what was there at first
			q.Until = page.AsOf
		}
		for _, s := range page.Sums {
			if err := fold.Add(s); err != nil {
				return err
			}
			if fold.Len() > maxGroups {
				return fmt.Errorf("more than %d groups: select less, or tell less apart", maxGroups)
			}
			tell.add(s.Events)
		}
		after, more = page.Next, page.More
	}
	out, err := rows.New(c.Format, p.stdout, names(sumRow(by, "", "", ledger.UsageSum{})))
	if err != nil {
		return err
	}
	slugs, sum := op.slugs(), ledger.UsageFold{}
	for _, s := range fold.Sums() {
		slug := ""
		if by.Account {
			if slug, err = slugs(p.ctx, s.Account); err != nil {
				return err
			}
		}
		if err := out.Row(sumRow(by, "", slug, s)); err != nil {
			return err
		}
		s.Account, s.Key, s.Model, s.Source, s.Start = ident.ID{}, ident.ID{}, "", "", time.Time{}
		if err := sum.Add(s); err != nil {
			return err
		}
	}
	if sum.Len() == 1 {
		total = sum.Sums()[0]
	}
	if by == (ledger.UsageGroups{}) {
		if sum.Len() == 0 { // one sum of all is one, also of nothing
			if err := out.Row(sumRow(by, "", "", total)); err != nil {
				return err
			}
		}
		return out.End(nil)
	}
	return out.End(sumRow(by, "TOTAL", "", total))
}

// maxGroups bounds what a command keeps to add up.
const maxGroups = 1_000_000

// sumRow projects a sum. In the row of the total the first group has its word.
func sumRow(by ledger.UsageGroups, word, slug string, s ledger.UsageSum) []rows.Cell {
	var row []rows.Cell
	group := func(asked bool, name, value string) {
		if asked {
			if word != "" {
				value, word = word, " "
			}
			row = append(row, rows.Cell{Name: name, Value: strings.TrimSpace(value)})
		}
	}
	start := ""
	if !s.Start.IsZero() {
		start = s.Start.Format(time.RFC3339)
	}
	group(by.Account, "account", slug)
	group(by.Account, "account_id", id(s.Account))
	group(by.Bucket == time.Hour, "hour", start)
	group(by.Bucket > time.Hour, "day", strings.TrimSuffix(start, "T00:00:00Z"))
	group(by.Key, "key_id", id(s.Key))
	group(by.Model, "model", s.Model)
	group(by.Source, "source", s.Source)
	row = append(row, rows.Cell{Name: "events", Value: s.Events}, rows.Cell{Name: "units", Value: s.Units}, rows.Cell{Name: "usd", Value: rows.USD(s.Units)},
		rows.Cell{Name: "overage_units", Value: s.OverageUnits}, rows.Cell{Name: "items", Value: s.Items})
	for _, t := range []struct {
		name string
		sum  ledger.TokenSum
	}{{"prompt", s.Prompt}, {"cached", s.Cached}, {"completion", s.Completion}, {"reasoning", s.Reasoning}} {
		row = append(row, rows.Cell{Name: t.name + "_tokens", Value: t.sum.Tokens}, rows.Cell{Name: t.name + "_unreported", Value: t.sum.Unreported})
	}
	return row
}

func id(i ident.ID) string {
	if i.IsZero() {
		return ""
	}
	return i.String()
}

func names(row []rows.Cell) []string {
	out := make([]string, len(row))
	for i, c := range row {
		out[i] = c.Name
	}
	return out
}

// slugs finds accounts' slugs, each once.
func (o *operator) slugs() func(context.Context, ident.ID) (string, error) {
	known := map[ident.ID]string{}
	return func(ctx context.Context, id ident.ID) (string, error) {
		if slug, ok := known[id]; ok {
			return slug, nil
		}
		a, err := o.account(ctx, id.String())
		if err == nil {
			known[id] = a.GetSlug()
		}
		return known[id], err
	}
}

// events prints events as they come.
func (c usageCommand) events(p *process, op *operator, q ledger.UsageQuery, tell *progress) error {
	out, err := rows.New(c.Format, p.stdout, names(eventRow(&ledger.UsageEvent{})))
	if err != nil {
		return err
	}
	err = op.ExportUsage(p.ctx, q, func(events []ledger.UsageEvent) error {
		for i := range events {
			if err := out.Row(eventRow(&events[i])); err != nil {
				return err
			}
		}
		tell.add(int64(len(events)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("export usage; what was printed is incomplete: %w", err)
	}
	return out.End(nil)
}

func eventRow(e *ledger.UsageEvent) []rows.Cell {
	reported := func(tokens int64) any {
		if tokens < 0 {
			return nil
		}
		return tokens
	}
	excessDay, policy := any(nil), ""
	if e.ExcessUnits > 0 {
		excessDay = day(e.ExcessDay)
	}
	if e.PolicyRevision != [32]byte{} {
		policy = hex.EncodeToString(e.PolicyRevision[:])
	}
	d := &e.Dimensions
	return []rows.Cell{
		{Name: "committed_at", Value: e.CommittedAt.UTC().Format(time.RFC3339Nano)},
		{Name: "account_id", Value: id(e.Account)},
		{Name: "request_id", Value: id(e.Request)},
		{Name: "key_id", Value: id(e.Key)},
		{Name: "source", Value: e.Source},
		{Name: "outcome", Value: string(e.Outcome)},
		{Name: "units", Value: e.Units},
		{Name: "usd", Value: rows.USD(e.Units)},
		{Name: "overage_units", Value: e.OverageUnits},
		{Name: "budget_day", Value: day(e.Day)},
		{Name: "excess_units", Value: e.ExcessUnits},
		{Name: "excess_day", Value: excessDay},
		{Name: "model", Value: d.Model},
		{Name: "endpoint", Value: e.Endpoint},
		{Name: "items", Value: e.Items},
		{Name: "prompt_tokens", Value: reported(d.PromptTokens)},
		{Name: "cached_tokens", Value: reported(d.CachedTokens)},
		{Name: "completion_tokens", Value: reported(d.CompletionTokens)},
		{Name: "reasoning_tokens", Value: reported(d.ReasoningTokens)},
		{Name: "policy_revision", Value: policy},
	}
}

// day spells a budget day.
func day(n int64) string { return time.Unix(n*86_400, 0).UTC().Format(time.DateOnly) }

// days prints budget days, account by account, the newest first.
func (c usageCommand) days(p *process, op *operator, q ledger.UsageQuery) error {
	row := func(slug, account, day string, t ledger.DayTotal) []rows.Cell {
		return []rows.Cell{
			{Name: "account", Value: slug},
			{Name: "account_id", Value: account},
			{Name: "budget_day", Value: day},
			{Name: "events", Value: t.Events},
			{Name: "units", Value: t.Units},
			{Name: "usd", Value: rows.USD(t.Units)},
			{Name: "overage_units", Value: t.OverageUnits},
		}
	}
	out, err := rows.New(c.Format, p.stdout, names(row("", "", "", ledger.DayTotal{})))
	if err != nil {
		return err
	}
	var sum ledger.UsageFold
	show := func(a *adminv1.Account) error {
		id, err := ident.Parse(a.GetAccountId())
		if err != nil {
			return err
		}
		for before := int64(0); ; {
			page, err := op.DayTotals(p.ctx, id, before, ledger.MaxPage)
			if err != nil {
				return fmt.Errorf("read the budget days of %s: %w", a.GetSlug(), err)
			}
			for _, t := range page {
				if err := errors.Join(out.Row(row(a.GetSlug(), a.GetAccountId(), day(t.Day), t)),
					sum.Add(ledger.UsageSum{Events: t.Events, Units: t.Units, OverageUnits: t.OverageUnits})); err != nil {
					return err
				}
			}
			if len(page) < ledger.MaxPage {
				return nil
			}
			before = page[len(page)-1].Day
		}
	}
	if err := op.each(p.ctx, q.Account, show); err != nil {
		return err
	}
	var total ledger.DayTotal
	for _, s := range sum.Sums() {
		total = ledger.DayTotal{Events: s.Events, Units: s.Units, OverageUnits: s.OverageUnits}
	}
	return out.End(row("TOTAL", "", "", total))
}

// each gives one account, or all.
func (o *operator) each(ctx context.Context, only ident.ID, do func(*adminv1.Account) error) error {
	if only.IsZero() {
		return o.accounts(ctx, do)
	}
	a, err := o.account(ctx, only.String())
	if err != nil {
		return err
	}
	return do(a)
}

// progress tells how many events were read, on a line of its own.
type progress struct {
	out    io.Writer // nil: nothing is told
	events int64
	told   int64
}

// progressEvery is how many events lie between two tellings.
const progressEvery = 10_000

func (c usageCommand) progress(p *process) *progress {
	tell := &progress{}
	if file, ok := p.stderr.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			tell.out = p.stderr
		}
	}
	if c.Progress {
		tell.out = p.stderr
	}
	return tell
}

func (t *progress) add(n int64) {
	t.events += n
	if t.out != nil && t.events-t.told >= progressEvery {
		t.told = t.events
		fmt.Fprintf(t.out, "\r%d events", t.events)
	}
}

func (t *progress) end() {
	if t.out != nil {
		fmt.Fprintf(t.out, "\r%d events\n", t.events)
	}
}
