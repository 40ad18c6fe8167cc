package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Report is what was found. Its JSON keys are those of the chain's published
// verifiers, in alphabetical order.
type Report struct {
	AllowsWithoutOutcome uint64            `json:"allows_without_outcome"`
	AnchorCoversEntries  uint64            `json:"anchor_covers_entries"`
	AnchorRecords        uint64            `json:"anchor_records"` // checked, up to the first problem
	Decisions            uint64            `json:"decisions"`
	Entries              uint64            `json:"entries"`
	Errors               []string          `json:"errors"` // at most one each for chain, anchors and signatures
	HeadReceiptID        *string           `json:"head_receipt_id"`
	OK                   bool              `json:"ok"`
	Outcomes             uint64            `json:"outcomes"`
	SignedEntries        uint64            `json:"signed_entries"` // whose signature verifies
	Verdicts             map[string]uint64 `json:"verdicts"`
	Warnings             []string          `json:"warnings"`
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func (c *checker) report() Report {
	r := Report{
		Decisions:     c.decisions,
		Entries:       c.number,
		Errors:        []string{},
		HeadReceiptID: c.head,
		Outcomes:      c.outcomes,
		SignedEntries: c.signed,
		Verdicts:      c.verdicts,
		Warnings:      []string{},
	}
	if c.chain != "" {
		r.Errors = append(r.Errors, c.chain)
	}
	c.reportAnchors(&r)
	c.reportSignatures(&r)
	for _, answered := range c.seen {
		if !answered {
			r.AllowsWithoutOutcome++
		}
	}
	if r.AllowsWithoutOutcome > 0 {
		r.warn("%d allowed calls have no outcome: still in flight, or never finished", r.AllowsWithoutOutcome)
	}
	if c.uncovered > 0 {
		r.warn("%d entries carry fields the hash does not cover (for example %q): they prove nothing", c.uncovered, c.uncoveredExample)
	}
	if c.in.Since > 0 {
		r.warn("the hashes and signatures of the first %d entries were not checked", min(c.in.Since, c.number))
	}
	r.OK = len(r.Errors) == 0
	return r
}

func (c *checker) reportAnchors(r *Report) {
	if c.in.Anchor == nil {
		r.warn("no anchor was given: deleting the newest entries (a rollback) cannot be detected")
		return
	}
	wrong, checked, covered := c.checkAnchors()
	r.AnchorRecords, r.AnchorCoversEntries = checked, covered
	switch {
	case wrong != "":
		r.Errors = append(r.Errors, wrong)
	case checked == 0:
		r.warn("the anchor file has no records, so nothing was checked against it")
	case covered < c.number:
		r.warn("the newest anchor covers %d of %d entries: the last %d are not anchored yet", covered, c.number, c.number-covered)
	}
}

func (c *checker) reportSignatures(r *Report) {
	if c.sigs.text != "" {
		r.Errors = append(r.Errors, c.sigs.text)
	}
	switch {
	case c.keys == nil:
		r.warn("no trusted keys were given, so signatures were not checked (%d entries carry one)", c.carrying)
	case c.sigs.text != "":
	case c.number > 0 && c.signed == 0:
		r.warn("none of the %d entries are signed, so authenticity is NOT checked", c.number)
	case c.signed < c.number:
		r.warn("%d entries are unsigned and nothing requires them to be", c.number-c.signed)
	}
}

const limits = `What this does and does not show
  - The entries are unchanged since they were written, in order, with none put in or taken out of the
    middle, and none cut from the end as far as the anchor goes.
  - With trusted keys: each entry was signed by a holder of a key you chose to trust.
  - It does NOT show that what was done matched what was asked, that the clock was right, or that a
    signing key was never stolen. An outcome is the gateway's own claim.
  - Anchors and keys must come from somewhere the log's writer cannot edit: copies that sit next to
    the log prove nothing about entries cut from its end.
`

// Text is the report for a person, ending in a newline.
func (r Report) Text() string {
	var b strings.Builder
	if r.OK {
		fmt.Fprintf(&b, "VERIFIED: %d entries (%d decisions, %d outcomes)\n", r.Entries, r.Decisions, r.Outcomes)
	} else {
		b.WriteString("NOT VERIFIED\n")
		for _, e := range r.Errors {
			fmt.Fprintf(&b, "  problem: %s\n", plain(e))
		}
	}
	if r.Entries > 0 {
		var verdicts []string
		for _, v := range slices.Sorted(maps.Keys(r.Verdicts)) {
			verdicts = append(verdicts, fmt.Sprintf("%d %s", r.Verdicts[v], plain(v)))
		}
		fmt.Fprintf(&b, "  verdicts: %s\n", strings.Join(verdicts, ", "))
		fmt.Fprintf(&b, "  signed entries: %d; anchor records checked: %d\n", r.SignedEntries, r.AnchorRecords)
		fmt.Fprintf(&b, "  newest entry: %s\n", plain(*r.HeadReceiptID))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "  note: %s\n", plain(w))
	}
	return b.String() + "\n" + limits
}

// plain keeps text of a log, which anyone may have written, from moving a
// terminal's cursor or forging lines of the report.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// JSON is the report for a program: indented, ending in a newline.
func (r Report) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the report: %w", err)
	}
	return append(b, '\n'), nil
}
