package verify

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"

	"github.com/tollgate-platform/tollgate/libs/receipt"
)

// checker is one run. Of each of chain, anchors and signatures only the first
// problem is kept: what follows it proves nothing.
type checker struct {
	in Input

	keys      map[string]receipt.TrustedKey // by key id
	placed    map[string]uint64             // cut-off receipt -> its entry's number
	anchors   []anchorLine
	at        map[uint64]string // anchored counts -> the id found there
	badAnchor string            // the first line that is no anchor, behind all of anchors

	number   uint64
	head     *string
	seen     map[string]bool // allow -> answered
	chain    string
	waiting  []signed // signatures of the current batch
	sigs     problem
	pending  map[string]problem // key id -> first entry whose cut-off isn't placed yet
	signed   uint64             // entries whose signature verifies
	carrying uint64             // entries that carry one

	decisions, outcomes uint64
	verdicts            map[string]uint64
	uncovered           uint64
	uncoveredExample    string
}

type anchorLine struct {
	number int
	*receipt.Anchor
}

// problem is something wrong at an entry; the zero problem is none.
type problem struct {
	number uint64
	text   string
}

func (p *problem) first(number uint64, format string, args ...any) {
	if p.text == "" || number < p.number {
		*p = problem{number, fmt.Sprintf("entry %d: ", number) + fmt.Sprintf(format, args...)}
	}
}

type signed struct {
	number        uint64
	key           receipt.PublicKey
	id, signature string
}

const batch = 512 // signatures verified together

func (c *checker) readKeys() error {
	text, err := io.ReadAll(io.LimitReader(c.in.Keys, receipt.MaxKeyFile+1))
	if err != nil {
		return unreadable("the trusted keys: %w", err)
	}
	keys, err := receipt.ParseTrustedKeys(text)
	if err != nil {
		return unreadable("%w", err)
	}
	c.keys, c.placed, c.pending = map[string]receipt.TrustedKey{}, map[string]uint64{}, map[string]problem{}
	for _, k := range keys {
		c.keys[k.Key.ID()] = k
		if k.Through != "" {
			c.placed[k.Through] = math.MaxUint64 // not seen yet
		}
	}
	return nil
}

func (c *checker) readAnchors() error {
	return lines(c.in.Anchor, "anchor", func(number int, line []byte) error {
		if c.badAnchor != "" {
			return nil
		}
		a, err := receipt.ParseAnchor(line)
		if err != nil {
			c.badAnchor = fmt.Sprintf("anchor line %d is malformed: %v", number, err)
			return nil
		}
		c.anchors = append(c.anchors, anchorLine{number, a})
		c.at[a.Count] = ""
		return nil
	})
}

func (c *checker) readLog() error {
	c.verdicts = map[string]uint64{}
	err := lines(c.in.Log, "log", func(number int, text []byte) error {
		l, err := receipt.ParseLine(text)
		if err != nil {
			return unreadable("log line %d: %w", number, err)
		}
		c.number++
		c.entry(l)
		if c.in.Each != nil {
			c.in.Each(c.number, l)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.flush()
	for _, p := range c.pending {
		if c.sigs.text == "" || p.number < c.sigs.number {
			c.sigs = p
		}
	}
	return nil
}

func (c *checker) entry(l *receipt.Line) {
	if c.chain == "" {
		if wrong := c.link(l); wrong != "" {
			c.chain = fmt.Sprintf("entry %d: %s", c.number, wrong)
		}
	}
	c.signature(l)
	c.count(l)
	id := strings.Clone(l.ID) // parsed text shares its line's memory
	if _, anchored := c.at[c.number]; anchored {
		c.at[c.number] = id
	}
	if n, cutoff := c.placed[l.ID]; cutoff && n == math.MaxUint64 {
		c.placed[l.ID] = c.number
		for id, k := range c.keys {
			if k.Through == l.ID {
				delete(c.pending, id)
			}
		}
	}
	c.head = &id
}

// link checks an entry's id, its place, and what it answers.
func (c *checker) link(l *receipt.Line) string {
	if c.number > c.in.Since {
		if id, known := l.ExpectedID(); !known || id != l.ID {
			return "its id does not match its contents (edited, or an unknown version)"
		}
	}
	if (l.Previous == nil) != (c.head == nil) || c.head != nil && *l.Previous != *c.head {
		return "it does not follow the entry before it (inserted, removed or reordered)"
	}
	if l.Outcome == nil {
		if l.Decision.Verdict == receipt.Allow.String() {
			c.seen[strings.Clone(l.ID)] = false
		}
		return ""
	}
	switch answered, allowed := c.seen[l.Outcome.DecisionID]; {
	case !allowed:
		return "an outcome that answers no earlier allow"
	case answered:
		return "a second outcome for the same allow"
	}
	c.seen[l.Outcome.DecisionID] = true
	return ""
}

func (c *checker) signature(l *receipt.Line) {
	switch {
	case l.KeyID == nil && l.Signature == nil:
		switch {
		case c.in.RequireSignatures:
			c.sigs.first(c.number, "not signed")
		case c.carrying > 0:
			c.sigs.first(c.number, "unsigned after signed entries (signatures stripped, or signing switched off)")
		}
		return
	case l.KeyID == nil || l.Signature == nil:
		c.sigs.first(c.number, "a key id without a signature, or the reverse")
		return
	}
	c.carrying++
	if c.keys == nil {
		return
	}
	k, trusted := c.keys[*l.KeyID]
	if !trusted {
		c.sigs.first(c.number, "signed by a key that is not trusted (%s)", *l.KeyID)
		return
	}
	c.cutoff(*l.KeyID, k.Through)
	if c.number <= c.in.Since {
		c.signed++
		return
	}
	c.waiting = append(c.waiting, signed{c.number, k.Key, l.ID, *l.Signature})
	if len(c.waiting) == batch {
		c.flush()
	}
}

// cutoff checks that a retired key signed nothing behind its last receipt. The
// receipt may still be ahead, and then the first use waits for it.
func (c *checker) cutoff(keyID, through string) {
	if through == "" {
		return
	}
	if last := c.placed[through]; last != math.MaxUint64 {
		c.sigs.first(c.number, "the key %s was retired or revoked after entry %d", keyID, last)
		return
	}
	if _, waits := c.pending[keyID]; !waits {
		var p problem
		p.first(c.number, "the key %s is trusted only through %s, which is not in this log", keyID, through)
		c.pending[keyID] = p
	}
}

// flush verifies the waiting signatures on all processors.
func (c *checker) flush() {
	good := make([]bool, len(c.waiting))
	workers := min(runtime.GOMAXPROCS(0), len(c.waiting))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(c.waiting); i += workers {
				s := &c.waiting[i]
				good[i] = s.key.VerifyEntry(s.id, s.signature)
			}
		})
	}
	wg.Wait()
	for i, ok := range good {
		if ok {
			c.signed++
			continue
		}
		c.sigs.first(c.waiting[i].number, "its signature does not verify")
	}
	c.waiting = c.waiting[:0]
}

func (c *checker) count(l *receipt.Line) {
	if l.Uncovered != "" {
		if c.uncovered == 0 {
			c.uncoveredExample = l.Uncovered
		}
		c.uncovered++
	}
	if l.Outcome != nil {
		c.outcomes++
		return
	}
	c.decisions++
	c.verdicts[l.Decision.Verdict]++
}

// checkAnchors compares every anchor with the log, in the file's order. It
// gives the first problem, how many held before it, and the largest count.
func (c *checker) checkAnchors() (wrong string, checked, covered uint64) {
	signedBefore := false
	for _, a := range c.anchors {
		if wrong = c.anchorSignature(a, &signedBefore); wrong != "" {
			return wrong, checked, covered
		}
		switch {
		case a.Count > c.number:
			return fmt.Sprintf("the log has %d entries but an anchor expects at least %d: entries were deleted", c.number, a.Count), checked, covered
		case c.at[a.Count] != a.Head:
			return fmt.Sprintf("entry %d does not match its anchor: the log was rewritten", a.Count), checked, covered
		}
		checked++
		covered = max(covered, a.Count)
	}
	return c.badAnchor, checked, covered
}

func (c *checker) anchorSignature(a anchorLine, signedBefore *bool) string {
	wrong := func(format string, args ...any) string {
		return fmt.Sprintf("anchor line %d: ", a.number) + fmt.Sprintf(format, args...)
	}
	switch {
	case a.KeyID == nil && a.Signature == nil:
		switch {
		case c.in.RequireSignatures:
			return wrong("not signed")
		case *signedBefore:
			return wrong("unsigned after signed ones")
		}
		return ""
	case a.KeyID == nil || a.Signature == nil:
		return wrong("a key id without a signature, or the reverse")
	}
	*signedBefore = true
	if c.keys == nil {
		return ""
	}
	k, trusted := c.keys[*a.KeyID]
	if !trusted {
		return wrong("signed by a key that is not trusted (%s)", *a.KeyID)
	}
	if a.Count >= c.in.Since && !k.Key.VerifyAnchor(a.Count, a.Head, *a.Signature) {
		return wrong("its signature does not verify")
	}
	if k.Through == "" {
		return ""
	}
	switch last := c.placed[k.Through]; {
	case last == math.MaxUint64:
		return wrong("the key %s is trusted only through %s, which is not in this log", *a.KeyID, k.Through)
	case a.Count > last:
		return wrong("the key %s was retired or revoked after entry %d, but this counts %d", *a.KeyID, last, a.Count)
	}
	return ""
}
