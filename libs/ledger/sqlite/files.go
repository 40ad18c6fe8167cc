package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// files is the database file with the lock that makes it ours.
type files struct {
	path      string
	lock      *os.File
	ephemeral bool
}

const (
	ephemeralPrefix = "tollgate-ledger-"
	lockSuffix      = ".lock"
)

// claim makes the folder, decides the path and takes the lock.
func claim(opts Options) (files, error) {
	path := opts.Path
	if opts.Ephemeral {
		dir := path
		if dir == "" {
			dir = os.TempDir()
		}
		removeStale(dir)
		f, err := os.CreateTemp(dir, ephemeralPrefix+"*.db")
		if err != nil {
			return files{}, unusable(dir, "the folder of an ephemeral ledger must be writable", err)
		}
		path = f.Name()
		if err := f.Close(); err != nil {
			return files{}, unusable(path, "must be writable", err)
		}
	}
	if path == "" {
		return files{}, unusable(path, "a path is required", nil)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return files{}, unusable(opts.Path, "must be a path", err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return files{}, unusable(path, "must be a regular file", nil)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return files{}, unusable(path, "its folder must exist or be makeable", err)
	}
	lock, err := takeLock(path + lockSuffix)
	if err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return files{}, unusable(path, "is in use by another process; a ledger file serves one process", err)
		}
		return files{}, unusable(path, "its folder must be writable", err)
	}
	return files{path: path, lock: lock, ephemeral: opts.Ephemeral}, nil
}

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// release removes an ephemeral file and gives the lock free. A persistent
// file's lock file stays: removing it would race with the next owner.
func (f *files) release() error {
	if f.lock == nil {
		return nil
	}
	var err error
	if f.ephemeral {
		err = remove(f.path)
	}
	err = errors.Join(err, f.lock.Close())
	f.lock = nil
	return err
}

// remove deletes a database with what belongs to it.
func remove(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", lockSuffix} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeStale deletes ephemeral ledgers whose process has died: those whose
// lock is free. One that is just being made has no lock file yet and is left.
func removeStale(dir string) {
	locks, err := filepath.Glob(filepath.Join(dir, ephemeralPrefix+"*.db"+lockSuffix))
	if err != nil {
		return
	}
	for _, path := range locks {
		f, err := takeLock(path)
		if err != nil {
			continue
		}
		_ = remove(path[:len(path)-len(lockSuffix)]) // what can't be removed is tried again at the next start
		_ = f.Close()
	}
}
