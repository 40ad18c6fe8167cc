// Package verify checks receipt chains without trusting whoever wrote them.
//
// It shares only the format (package receipt) with the service that writes
// chains: every hash is recomputed, every link and every outcome checked,
// every anchor compared, and, with trusted keys, every signature verified
// strictly. Its report has the words and keys of the chain's other published
// verifiers, so a script can read either.
//
// What the report doesn't say: that what was done matched what was asked, that
// the clock was right, or that a key was never stolen. Entries newer than the
// newest anchor you hold can be removed without a trace.
//
// Concurrency: Read and Dir keep no state; signatures are verified on all
// processors. Memory grows with the allows and anchors of a log, not with its
// bytes. Failure: input that cannot be understood is ErrUnreadable; a log that
// is understood and wrong is a Report with OK false.
package verify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tollgate-platform/tollgate/libs/receipt"
)

// ErrUnreadable is in the tree of every error about input that cannot be
// understood, as opposed to evidence that doesn't hold.
var ErrUnreadable = errors.New("cannot check")

func unreadable(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnreadable, fmt.Errorf(format, args...))
}

// The exit codes of a command that verifies.
const (
	ExitVerified    = 0
	ExitNotVerified = 1
	ExitUnreadable  = 2
)

// ExitCode maps what Read and Dir return to a command's exit code.
func ExitCode(r Report, err error) int {
	switch {
	case err != nil:
		return ExitUnreadable
	case r.OK:
		return ExitVerified
	}
	return ExitNotVerified
}

// Input is what Read checks.
type Input struct {
	Log    io.Reader // receipts.jsonl
	Anchor io.Reader // anchor.jsonl; nil when none is at hand
	Keys   io.Reader // a trusted keys file; nil leaves signatures unchecked

	// RequireSignatures refuses unsigned entries and anchors. It needs Keys.
	RequireSignatures bool

	// Since skips the hashes and signatures of the first Since entries, and the
	// signatures of anchors below it. They are still read, linked and compared
	// with the anchors. 0 checks everything.
	Since uint64

	// Each, when set, is given every entry in order, with its number from 1,
	// before the verdict is known. It must not keep or change the line.
	Each func(number uint64, l *receipt.Line)
}

// Options chooses what Dir checks beside the log.
type Options struct {
	AnchorFile        string // default: anchor.jsonl in the folder, if it is there
	KeysFile          string // default: signing.pub in the folder, if it is there
	RequireSignatures bool
}

// The names of a chain's files inside its folder.
const (
	LogFile    = "receipts.jsonl"
	AnchorFile = "anchor.jsonl"
	KeyFile    = "signing.pub"
)

// Dir checks the chain in a folder. Files named in Options must be there.
// Anchors and keys from beside the log are used when no others are given, and
// the report says that they prove less.
func Dir(dir string, o Options) (Report, error) {
	log, err := os.Open(filepath.Join(dir, LogFile))
	if err != nil {
		return Report{}, unreadable("the log: %w", err)
	}
	defer log.Close()
	in := Input{Log: log, RequireSignatures: o.RequireSignatures}
	var local []string

	anchor, beside, err := openBeside(dir, o.AnchorFile, AnchorFile)
	if err != nil {
		return Report{}, unreadable("the anchor: %w", err)
	}
	if anchor != nil {
		defer anchor.Close()
		in.Anchor = anchor
		if beside {
			local = append(local, "anchor")
		}
	}
	keys, beside, err := openBeside(dir, o.KeysFile, KeyFile)
	if err != nil {
		return Report{}, unreadable("the trusted keys: %w", err)
	}
	if keys != nil {
		defer keys.Close()
		in.Keys = keys
		if beside {
			local = append(local, "key")
		}
	}
	r, err := Read(in)
	if err != nil {
		return Report{}, err
	}
	for _, what := range local {
		r.warn("the %s was read from beside the log: compare it with a copy that the log's writer could not edit", what)
	}
	return r, nil
}

// openBeside opens the named file, or the default one inside dir. A default
// that isn't there is no file and no error.
func openBeside(dir, named, fallback string) (_ *os.File, beside bool, _ error) {
	if named != "" {
		f, err := os.Open(named) //nolint:gosec // the caller's own choice of file
		return f, false, err
	}
	f, err := os.Open(filepath.Join(dir, fallback))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	return f, true, err
}

// Read checks one chain.
func Read(in Input) (Report, error) {
	if in.RequireSignatures && in.Keys == nil {
		return Report{}, unreadable("required signatures need trusted keys")
	}
	c := &checker{in: in, seen: map[string]bool{}, at: map[uint64]string{}}
	if in.Keys != nil {
		if err := c.readKeys(); err != nil {
			return Report{}, err
		}
	}
	if in.Anchor != nil {
		if err := c.readAnchors(); err != nil {
			return Report{}, err
		}
	}
	if err := c.readLog(); err != nil {
		return Report{}, err
	}
	return c.report(), nil
}

// lines calls f with every line that isn't blank, and its number. Lines end at
// "\n" only; one "\r" before it is dropped; the last line may lack it.
func lines(r io.Reader, what string, f func(number int, line []byte) error) error {
	br := bufio.NewReaderSize(r, 1<<16)
	var long []byte
	for number := 1; ; {
		part, err := br.ReadSlice('\n')
		if len(long)+len(part) > receipt.MaxLine {
			return unreadable("%s line %d: longer than 1 MiB", what, number)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			continue
		}
		line := part
		if len(long) > 0 {
			long = append(long, part...)
			line = long
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(bytes.TrimSpace(line)) > 0 {
			if err := f(number, line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreadable("the %s: %w", what, err)
		}
		long = long[:0]
		number++
	}
}
