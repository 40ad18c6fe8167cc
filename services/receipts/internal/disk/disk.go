// Package disk is the file system as evidence needs it: few operations, each
// one a step that a power cut can come before or after, so that tests can cut
// the power between any two.
//
// Nothing here is durable until it is synced: a file's bytes by File.Sync, a
// file's name by SyncDir of its folder. Implementations are safe for
// concurrent use on different files. Errors are those of package os; a missing
// file is fs.ErrNotExist.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Disk is a file system. Files are made at mode 0600, folders at 0700.
type Disk interface {
	// MkdirAll makes a folder and those above it. Their names are not synced.
	MkdirAll(dir string) error
	// Names lists a folder, sorted.
	Names(dir string) ([]string, error)
	// Open opens a file for appending and reading, making it if it is missing.
	Open(name string) (File, error)
	// Read opens a file that exists for reading.
	Read(name string) (File, error)
	// Replace makes or empties a file for writing.
	Replace(name string) (File, error)
	// Rename moves a file over another in the same folder.
	Rename(from, to string) error
	// Stat tells a file's mode and size.
	Stat(name string) (fs.FileInfo, error)
	// Truncate cuts a file. The cut is not synced.
	Truncate(name string, size int64) error
	// SyncDir makes the names in a folder durable.
	SyncDir(dir string) error
}

// File is an open file. Write appends.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Sync() error
	Size() (int64, error)
}

// OS is the machine's own file system.
type OS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600) //nolint:gosec // names are built from ids, below the configured folder
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// MkdirAll makes a folder and those above it.
func (OS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

// Names lists a folder, sorted.
func (OS) Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Open opens a file for appending and reading.
func (OS) Open(name string) (File, error) { return open(name, os.O_APPEND|os.O_CREATE|os.O_RDWR) }

// Read opens a file for reading.
func (OS) Read(name string) (File, error) { return open(name, os.O_RDONLY) }

// Replace makes or empties a file.
func (OS) Replace(name string) (File, error) { return open(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY) }

// Rename moves a file over another.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Stat tells a file's mode and size.
func (OS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// Truncate cuts a file.
func (OS) Truncate(name string, size int64) error { return os.Truncate(name, size) }

// SyncDir makes the names in a folder durable.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // names are built from ids, below the configured folder
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadFile reads at most limit bytes of a file; a longer file is an error.
func ReadFile(d Disk, name string, limit int64) (_ []byte, err error) {
	f, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("larger than expected")}
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

// WriteFile puts data in a file, whole or not at all, durably: a temporary file
// is synced, renamed over it, and the folder synced.
func WriteFile(d Disk, name string, data []byte) error {
	temporary := name + ".tmp"
	f, err := d.Replace(temporary)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.Rename(temporary, name); err != nil {
		return err
	}
	return d.SyncDir(filepath.Dir(name))
}

// Exists says whether a file is there.
func Exists(d Disk, name string) (bool, error) {
	_, err := d.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
