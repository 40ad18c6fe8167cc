package chain

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/tollgate-platform/tollgate/libs/receipt"
)

// commit makes a batch durable with one write and one sync, and answers it.
func (c *Chain) commit(batch []*job) {
	if c.stopped.Load() != nil {
		c.refuse(batch, errStopped)
		return
	}
	if err := c.write(c.signed(batch)); err != nil {
		c.stop("write", err)
		c.refuse(batch, err)
		return
	}
	for _, j := range batch {
		if j != nil {
			j.done <- nil
		}
	}
}

func (c *Chain) refuse(batch []*job, cause error) {
	err := receipt.Unavailable(cause)
	for _, j := range batch {
		if j != nil {
			c.failures.Add(1)
			j.done <- err
		}
	}
}

// signed gives the lines of a batch. Links are made one after another, and
// signed meanwhile on all processors: a signature costs more than all else.
func (c *Chain) signed(batch []*job) []*receipt.Line {
	linked := make(chan *receipt.Line, len(batch))
	var signers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(batch)) - 1 {
		signers.Go(func() { sign(c.signer, linked) })
	}
	lines := c.link(batch, linked)
	close(linked)
	sign(c.signer, linked)
	signers.Wait()
	return lines
}

func sign(signer *receipt.Signer, linked <-chan *receipt.Line) {
	for l := range linked {
		signer.SignLine(l)
	}
}

// link gives every new entry its place, in order, hands its line to linked,
// which has room for all, and finds the receipts of repeats. An entry that has
// no place is answered here and leaves the batch.
func (c *Chain) link(batch []*job, linked chan<- *receipt.Line) []*receipt.Line {
	lines := make([]*receipt.Line, 0, len(batch))
	head := ""
	if h := c.head.Load(); h != nil {
		head = *h
	}
	for i, j := range batch {
		known, err := c.known(j)
		switch {
		case err != nil:
			if _, own := errors.AsType[*unreadable](err); own {
				c.failures.Add(1)
				err = receipt.Unavailable(err)
			}
			j.done <- err
			batch[i] = nil
			continue
		case known != "":
			j.id = known
			continue
		}
		l := j.draft.Link(head)
		head, j.id = l.ID, l.ID
		c.remember(j, l)
		linked <- l
		lines = append(lines, l)
	}
	return lines
}

// known finds the receipt a repeated entry already has, "" for a new one. An
// outcome without an allow is an error.
func (c *Chain) known(j *job) (string, error) {
	if j.entry.Kind != receipt.Outcome {
		if v, ok := c.recent.get(repeat{j.entry.Request, j.entry.Kind}); ok {
			return v.String(), nil
		}
		if v, ok := c.restored.get(proposal{hashID(j.draft.ProposalHash()), j.draft.Verdict()}); ok {
			return v.String(), nil
		}
		return "", nil
	}
	allow := parseID(j.entry.Decision)
	if _, ok := c.open.get(allow); ok {
		return "", nil
	}
	if v, ok := c.answers.get(allow); ok {
		return v.String(), nil
	}
	// Older than memory, or never there: the log knows.
	found, outcome, err := c.search(j.entry.Decision)
	switch {
	case err != nil:
		return "", &unreadable{err}
	case !found:
		return "", invalidDecision()
	}
	return outcome, nil
}

// unreadable is a log that cannot be searched.
type unreadable struct{ error }

func (u *unreadable) Unwrap() error { return u.error }

// remember notes a new entry for its repeats.
func (c *Chain) remember(j *job, l *receipt.Line) {
	own := parseID(l.ID)
	switch j.entry.Kind {
	case receipt.Outcome:
		allow := parseID(j.entry.Decision)
		c.open.delete(allow)
		c.answers.put(allow, own)
		return
	case receipt.Allow:
		c.open.put(own, struct{}{})
	case receipt.Deny, receipt.AwaitHumanApproval:
	}
	c.recent.put(repeat{j.entry.Request, j.entry.Kind}, own)
}

// search reads the log for an allow and for the outcome that answers it. It
// is for allows that memory has let go: a repeat long after, or a mistake.
func (c *Chain) search(decision string) (found bool, outcome string, _ error) {
	r := bufio.NewReader(io.NewSectionReader(c.log, 0, c.size))
	name := []byte(decision)
	for {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return found, outcome, nil
		}
		if err != nil {
			return false, "", err
		}
		if !bytes.Contains(text, name) {
			continue
		}
		l, err := receipt.ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			return false, "", err
		}
		switch {
		case l.Decision != nil && l.ID == decision && l.Decision.Verdict == receipt.Allow.String():
			found = true
		case l.Outcome != nil && l.Outcome.DecisionID == decision:
			outcome = l.ID
		}
	}
}

// write puts signed lines on the disk.
func (c *Chain) write(lines []*receipt.Line) error {
	if len(lines) == 0 {
		return nil
	}
	c.buf = c.buf[:0]
	for _, l := range lines {
		c.buf = l.Append(c.buf)
	}
	if n, err := c.log.Write(c.buf); err != nil {
		return fmt.Errorf("append %d bytes, %d done: %w", len(c.buf), n, err)
	}
	if err := c.sync(c.log); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	c.unchecked.Write(c.buf)
	c.size += int64(len(c.buf))
	c.head.Store(&lines[len(lines)-1].ID)
	c.logSize.Store(c.size)
	c.entries.Add(uint64(len(lines)))
	c.written.Add(uint64(len(lines)))
	return nil
}

// anchor signs the head, if entries came since the last anchor, after reading
// back what was written since the last time.
func (c *Chain) anchor() {
	count := c.entries.Load()
	if count == c.anchored.Load() || c.stopped.Load() != nil {
		return
	}
	head := *c.head.Load()
	if err := c.readBack(head); err != nil {
		c.stop("read back", err)
		return
	}
	line := c.signer.Anchor(count, head).Append(nil)
	if _, err := c.anchors.Write(line); err != nil {
		c.stop("anchor", err)
		return
	}
	if err := c.sync(c.anchors); err != nil {
		c.stop("anchor", err)
		return
	}
	c.anchorSize.Add(int64(len(line)))
	c.anchored.Store(count)
	c.anchoredAt.Store(c.o.Clock.Now().UnixNano())
}

// readBack confirms that the disk has the very bytes that were written since
// the last check, and nothing behind them. Equal bytes have equal hashes,
// links and signatures, so only the head's are computed again: checking all
// would cost twice what signing does.
func (c *Chain) readBack(head string) error {
	size, err := c.log.Size()
	if err != nil {
		return err
	}
	if size != c.size {
		return fmt.Errorf("the log has %d bytes, %d were written", size, c.size)
	}
	got := newHash()
	if _, err := io.Copy(got, io.NewSectionReader(c.log, c.checked, c.size-c.checked)); err != nil {
		return err
	}
	if !bytes.Equal(got.Sum(nil), c.unchecked.Sum(nil)) {
		return fmt.Errorf("the log's bytes %d to %d are not those that were written", c.checked, c.size)
	}
	if err := c.checkHead(head); err != nil {
		return err
	}
	c.checked, c.unchecked = c.size, newHash()
	return nil
}

func (c *Chain) checkHead(head string) error {
	start, err := LastLineEnd(c.log, c.size-1)
	if err != nil {
		return err
	}
	text := make([]byte, c.size-1-start)
	if _, err := c.log.ReadAt(text, start); err != nil {
		return err
	}
	l, err := receipt.ParseLine(text)
	if err != nil {
		return err
	}
	expected, _ := l.ExpectedID()
	switch {
	case l.ID != head || expected != head:
		return fmt.Errorf("the log ends at %s, not at %s", l.ID, head)
	case l.Signature == nil || !c.signer.Public().VerifyEntry(head, *l.Signature):
		return errors.New("the signature of the newest entry does not verify")
	}
	return nil
}

const idPrefix = "receipt:sha3-256:"

func (i id) String() string { return idPrefix + hex.EncodeToString(i[:]) }

// parseID reads a receipt id that was validated before.
func parseID(s string) id { return hashID(strings.TrimPrefix(s, "receipt:")) }

func hashID(s string) (i id) {
	_, _ = hex.Decode(i[:], []byte(strings.TrimPrefix(s, "sha3-256:")))
	return i
}
