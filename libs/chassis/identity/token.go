package identity

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// Bounds of a bearer token and of the header that carries it, in bytes.
const (
	MinTokenBytes  = 32
	MaxTokenBytes  = maxHeaderBytes - len(scheme) - 1
	maxHeaderBytes = 16 << 10
	scheme         = "Bearer"
)

// ReadToken reads a token file: 32 to 16,377 visible ASCII characters, one
// final line break allowed. The error names the file and the rule, never the
// content.
func ReadToken(path string) (string, error) {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return "", badToken(path, "cannot be read", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(MaxTokenBytes)+3)) // the longest token, CR LF, and one too many
	if err := errors.Join(err, f.Close()); err != nil {
		return "", badToken(path, "cannot be read", err)
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if !wellFormed(token) {
		return "", badToken(path, fmt.Sprintf("must hold one token of %d to %d visible ASCII characters", MinTokenBytes, MaxTokenBytes), nil)
	}
	return token, nil
}

func badToken(path, rule string, cause error) error {
	return fault.Because(fault.Invalid, "TOKEN_FILE_INVALID", "the token file "+path+" "+rule, cause)
}

func wellFormed(token string) bool {
	if len(token) < MinTokenBytes || len(token) > MaxTokenBytes {
		return false
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return false
		}
	}
	return true
}

// EnsureToken makes a new random token in a file of mode 0600 unless the file
// is there, and proves that the file can be used. It never replaces one: a
// token that can't be read or is malformed is an error.
func EnsureToken(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		var b [32]byte
		_, _ = rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program
		if err := WriteOnce(path, hex.EncodeToString(b[:])); err != nil {
			return badToken(path, "cannot be made", err)
		}
	}
	_, err := ReadToken(path)
	return err
}

// WriteOnce makes a file of mode 0600 with one line of text. It links a fully
// written temporary file into place, so that no reader sees half a secret and a
// file that is there, or that another process made meanwhile, stays.
func WriteOnce(path, text string) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".secret-*")
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(tmp.Name())) }()
	_, werr := tmp.WriteString(text + "\n")
	if err := errors.Join(werr, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("place: %w", err)
	}
	return nil
}

// presented gives the token of a request: one Authorization header of at most
// 16 KiB that holds one bearer token.
func presented(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", unauthenticated("Authorization: a bearer token is required")
	}
	if len(values) > 1 || len(values[0]) > maxHeaderBytes {
		return "", unauthenticated("Authorization: must be one header of at most 16 KiB")
	}
	kind, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(kind, scheme) || !wellFormed(token) {
		return "", unauthenticated("Authorization: must be one well-formed bearer token")
	}
	return token, nil
}

func unauthenticated(public string) error {
	return fault.New(fault.Unauthenticated, "UNAUTHENTICATED", public)
}
