package chain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

// ErrRefused is in the tree of every error about evidence that must not be
// written to as it is: a person has to look. Nothing was changed.
var ErrRefused = errors.New("refusing to write to this chain")

const (
	recoveryFile  = "recovery.jsonl"
	quarantineDir = "quarantine"

	maxRecoveries = 64 << 20 // bytes of recovery.jsonl
)

// torn is a file that ends part-way through a line. Such a fragment was never
// acknowledged: the writer answers only when whole lines are on the disk.
type torn struct {
	file     string // its name inside the chain's folder
	kept     int64  // bytes up to the last whole line
	fragment []byte
}

// findTorn looks at a file's end. It gives the length of its whole lines, and
// the fragment behind them, if any. A missing file is empty. A fragment that
// is a whole record could be a committed entry that lost only its newline; a
// longer one than any line is none of ours. Both are refused.
func findTorn(d disk.Disk, dir, file string) (kept int64, _ *torn, err error) {
	f, err := d.Read(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return 0, nil, err
	}
	kept, err = LastLineEnd(f, size)
	if err != nil || kept == size {
		return kept, nil, err
	}
	if size-kept > receipt.MaxLine {
		return 0, nil, fmt.Errorf("%w: %s ends in more than 1 MiB without a newline", ErrRefused, file)
	}
	fragment := make([]byte, size-kept)
	if _, err := f.ReadAt(fragment, kept); err != nil {
		return 0, nil, err
	}
	if receipt.IsJSON(fragment) {
		return 0, nil, fmt.Errorf("%w: the last line of %s is a whole record without its newline", ErrRefused, file)
	}
	return kept, &torn{file, kept, fragment}, nil
}

// LastLineEnd gives the offset behind the last newline before size, looking
// back a little more than one line.
func LastLineEnd(f disk.File, size int64) (int64, error) {
	const step = 1 << 16
	for end := size; end > 0 && size-end <= receipt.MaxLine; {
		start := max(end-step, 0)
		b := make([]byte, end-start)
		if _, err := f.ReadAt(b, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// quarantine moves a fragment out of its file. The fragment is copied and the
// step recorded, durably, before the file is cut, so a crash in between leaves
// only steps that the next run finds done.
func quarantine(d disk.Disk, dir string, t *torn, now time.Time) error {
	hash := sha256.Sum256(t.fragment)
	name := t.file + "." + hex.EncodeToString(hash[:]) + ".fragment"
	folder := filepath.Join(dir, quarantineDir)
	if err := d.MkdirAll(folder); err != nil {
		return err
	}
	if err := d.SyncDir(dir); err != nil {
		return err
	}
	if err := disk.WriteFile(d, filepath.Join(folder, name), t.fragment); err != nil {
		return err
	}
	if err := record(d, dir, t, name, receipt.Digest(hash), now); err != nil {
		return err
	}
	path := filepath.Join(dir, t.file)
	if err := d.Truncate(path, t.kept); err != nil {
		return err
	}
	return syncFile(d, path)
}

func syncFile(d disk.Disk, name string) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// record adds the step to recovery.jsonl, unless it is there already.
func record(d disk.Disk, dir string, t *torn, quarantined string, hash receipt.Digest, now time.Time) error {
	path := filepath.Join(dir, recoveryFile)
	before, err := disk.ReadFile(d, path, maxRecoveries)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	what := map[string]any{
		"file":            t.file,
		"fragment_bytes":  len(t.fragment),
		"fragment_sha256": hash.String(),
		"kept_bytes":      t.kept,
		"quarantine":      quarantined,
	}
	same, err := receipt.Canon(what)
	if err != nil {
		return err
	}
	// Keys are sorted, so the two that follow come last and the rest of a line
	// says whether it is about this very fragment.
	if bytes.Contains(before, same[:len(same)-1]) {
		return nil
	}
	what["recovered_at"] = now.UTC().Format(time.RFC3339)
	what["version"] = "tollgate.recovery.v1"
	line, err := receipt.Canon(what)
	if err != nil {
		return err
	}
	return disk.WriteFile(d, path, append(append(before, line...), '\n'))
}
