package chain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

const maxAnchors = 1 << 30 // bytes of anchor.jsonl: about 2.5 million anchors

// Open verifies the chain in o.Dir, moves a torn tail to quarantine, and starts
// its writing goroutine. A folder that isn't there becomes an empty chain.
// What cannot be trusted is ErrRefused, and then nothing was changed.
func Open(o Options) (*Chain, error) {
	c := &Chain{
		o:     o,
		queue: make(chan *job, queueMax),
		ask:   make(chan struct{}, 1),
		done:  make(chan struct{}),
		writer: writer{
			unchecked: newHash(),
			recent:    newWindow[repeat, id](recentMax),
			restored:  newWindow[proposal, id](recentMax),
			open:      newWindow[id, struct{}](openMax),
			answers:   newWindow[id, id](recentMax),
		},
	}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("chain of %s: %w", o.Account, err)
	}
	go c.run()
	return c, nil
}

func (c *Chain) load() error {
	if err := c.makeDir(); err != nil {
		return err
	}
	logSize, tornLog, err := findTorn(c.o.Disk, c.o.Dir, verify.LogFile)
	if err != nil {
		return err
	}
	anchorSize, tornAnchor, err := findTorn(c.o.Disk, c.o.Dir, verify.AnchorFile)
	if err != nil {
		return err
	}
	signer, keys, err := loadKeys(c.o.Disk, c.o.Dir, logSize == 0)
	if err != nil {
		return err
	}
	c.signer = signer
	if err := c.verify(logSize, anchorSize, keys); err != nil {
		return err
	}
	for _, t := range []*torn{tornLog, tornAnchor} {
		if t == nil {
			continue
		}
		if err := quarantine(c.o.Disk, c.o.Dir, t, c.o.Clock.Now()); err != nil {
			return fmt.Errorf("quarantine the torn end of %s: %w", t.file, err)
		}
		c.recoveries.Add(1)
		c.o.Log.Warn("receipt chain recovered", slog.String("account", c.o.Account.String()),
			slog.String("file", t.file), slog.Int64("kept_bytes", t.kept), slog.Int("fragment_bytes", len(t.fragment)))
	}
	c.size, c.checked = logSize, logSize
	c.logSize.Store(logSize)
	c.anchorSize.Store(anchorSize)
	return c.openFiles()
}

// makeDir makes the folder, durably: its own name and that of the account's
// folder above it.
func (c *Chain) makeDir() error {
	if err := c.o.Disk.MkdirAll(c.o.Dir); err != nil {
		return err
	}
	account := filepath.Dir(c.o.Dir)
	if err := c.o.Disk.SyncDir(filepath.Dir(account)); err != nil {
		return err
	}
	return c.o.Disk.SyncDir(account)
}

func (c *Chain) openFiles() (err error) {
	if c.log, err = c.o.Disk.Open(filepath.Join(c.o.Dir, verify.LogFile)); err != nil {
		return err
	}
	if c.anchors, err = c.o.Disk.Open(filepath.Join(c.o.Dir, verify.AnchorFile)); err != nil {
		return errors.Join(err, c.log.Close())
	}
	if err := c.o.Disk.SyncDir(c.o.Dir); err != nil {
		return errors.Join(err, c.log.Close(), c.anchors.Close())
	}
	return nil
}

// verify checks the whole lines of the files and remembers what later entries
// ask about.
func (c *Chain) verify(logSize, anchorSize int64, keys []byte) error {
	anchors, err := disk.ReadFile(c.o.Disk, filepath.Join(c.o.Dir, verify.AnchorFile), maxAnchors)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	anchors = anchors[:anchorSize]
	in := verify.Input{
		Log:               strings.NewReader(""),
		Anchor:            bytes.NewReader(anchors),
		Keys:              bytes.NewReader(keys),
		RequireSignatures: true,
		Each:              c.restore,
	}
	if c.o.SinceAnchor {
		in.Since = newestCount(anchors)
	}
	if logSize > 0 {
		f, err := c.o.Disk.Read(filepath.Join(c.o.Dir, verify.LogFile))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in.Log = io.NewSectionReader(f, 0, logSize)
	}
	report, err := verify.Read(in)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if !report.OK {
		return fmt.Errorf("%w: %s", ErrRefused, strings.Join(report.Errors, "; "))
	}
	c.entries.Store(report.Entries)
	c.anchored.Store(report.AnchorCoversEntries)
	c.head.Store(report.HeadReceiptID)
	return nil
}

// newestCount gives the largest count of readable anchors: verification comes
// after it and refuses the others.
func newestCount(anchors []byte) (newest uint64) {
	for line := range bytes.Lines(anchors) {
		if a, err := receipt.ParseAnchor(bytes.TrimRight(line, "\r\n")); err == nil {
			newest = max(newest, a.Count)
		}
	}
	return newest
}

func (c *Chain) restore(_ uint64, l *receipt.Line) {
	own := parseID(l.ID)
	if l.Outcome != nil {
		allow := parseID(l.Outcome.DecisionID)
		c.open.delete(allow)
		c.answers.put(allow, own)
		return
	}
	verdict := l.Decision.Verdict
	for _, k := range []receipt.Kind{receipt.Allow, receipt.Deny, receipt.AwaitHumanApproval} {
		if verdict == k.String() {
			verdict = k.String() // the line's text would keep the line
		}
	}
	if verdict == receipt.Allow.String() {
		c.open.put(own, struct{}{})
	}
	c.restored.put(proposal{hashID(l.Decision.ProposalHash), verdict}, own)
}
