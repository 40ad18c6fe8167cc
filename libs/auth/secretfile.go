package auth

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// issuerHex is the length of an issuer secret file's text, which is itself the
// HMAC key (keyed as text).
const issuerHex = 64

// OpenIssuer reads the issuer secret file: exactly 64 lowercase hex digits,
// one final newline allowed. With create, a missing file is made first (0600,
// durable, never overwriting one that another process made meanwhile). The error names the field auth.issuer_secret_file
// and the rule, never the content.
func OpenIssuer(path string, create bool) (*Issuer, error) {
	text, err := readSecret(path)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = createSecret(path); err == nil {
			text, err = readSecret(path)
		}
	}
	if err != nil {
		return nil, badFile("cannot be read or created", err)
	}
	if !lowerHex(text, issuerHex) {
		return nil, badFile("must hold exactly 64 lowercase hex digits", nil)
	}
	return NewIssuer([]byte(text))
}

func badFile(rule string, cause error) error {
	return fault.Because(fault.Invalid, "ISSUER_SECRET_INVALID", "auth.issuer_secret_file "+rule, cause)
}

func readSecret(path string) (text string, err error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return "", fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, issuerHex+2))
	return strings.TrimSuffix(string(b), "\n"), err
}

// createSecret links a fully written temporary file into place, so that no
// reader ever sees half a secret and an existing file is never replaced.
func createSecret(path string) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".issuer-*")
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(tmp.Name())) }()
	var b [issuerHex / 2]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program
	_, werr := tmp.WriteString(hex.EncodeToString(b[:]) + "\n")
	if err := errors.Join(werr, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("place: %w", err)
	}
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
