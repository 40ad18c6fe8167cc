//go:build unix

package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrLocked says that another process holds a lock.
var ErrLocked = errors.New("another process uses this folder")

// Lock takes an exclusive lock on a file of its own, making it if needed, for
// as long as the returned file is open. It never waits: a lock that is held is
// ErrLocked. The system frees it when the process dies.
func Lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the configured folder
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	return f, nil
}
