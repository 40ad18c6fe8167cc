package receipts

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/chain"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

// ReasonNotFound says that an account has no chain by that writer.
const ReasonNotFound = "RECEIPTS_NOT_FOUND"

func notFound() error {
	return fault.New(fault.NotFound, ReasonNotFound, "the account has no receipts by this writer")
}

func unreadable(err error) error {
	return fault.Because(fault.Unavailable, receipt.ReasonUnavailable, "the receipts could not be read", err)
}

// Writers lists the writers of an account's chains, sorted. An account without
// a chain has none.
func (s *Service) Writers(account ident.ID) ([]string, error) {
	names, err := s.disk.Names(filepath.Join(s.cfg.Directory, account.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(err)
	}
	writers := names[:0]
	for _, name := range names {
		if isWriter(name) {
			writers = append(writers, name)
		}
	}
	return writers, nil
}

// isWriter is the wire's rule for a writer's name. It has no separator and
// doesn't start with a dot, so it is also safe as a folder's name.
func isWriter(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '_' || name[0] == '.' || name[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	})
}

// Log opens receipts.jsonl up to its last complete, durable line. An empty
// writer means the account's only one. The caller closes it.
func (s *Service) Log(account ident.ID, writer string) (io.ReadCloser, error) {
	return s.evidence(account, writer, verify.LogFile)
}

// Anchor opens anchor.jsonl like Log.
func (s *Service) Anchor(account ident.ID, writer string) (io.ReadCloser, error) {
	return s.evidence(account, writer, verify.AnchorFile)
}

// PublicKey gives signing.pub, byte for byte.
func (s *Service) PublicKey(account ident.ID, writer string) ([]byte, error) {
	writer, err := s.pick(account, writer)
	if err != nil {
		return nil, err
	}
	text, err := disk.ReadFile(s.disk, filepath.Join(s.folder(account, writer), verify.KeyFile), receipt.MaxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound()
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return text, nil
}

// pick gives the writer asked for, or the only one.
func (s *Service) pick(account ident.ID, writer string) (string, error) {
	if writer != "" && isWriter(writer) {
		return writer, nil
	}
	writers, err := s.Writers(account)
	switch {
	case err != nil:
		return "", err
	case len(writers) == 0 || writer != "":
		return "", notFound()
	case len(writers) > 1:
		return "", fault.New(fault.Invalid, receipt.ReasonInvalid, "writer: must be named, the account has several")
	}
	return writers[0], nil
}

func (s *Service) evidence(account ident.ID, writer, file string) (io.ReadCloser, error) {
	writer, err := s.pick(account, writer)
	if err != nil {
		return nil, err
	}
	f, err := s.disk.Read(filepath.Join(s.folder(account, writer), file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound()
	}
	if err != nil {
		return nil, unreadable(err)
	}
	size, err := s.durable(f, account, writer, file)
	if err != nil {
		return nil, errors.Join(unreadable(err), f.Close())
	}
	return &lines{Reader: io.NewSectionReader(f, 0, size), Closer: f}, nil
}

type lines struct {
	io.Reader
	io.Closer
}

// durable tells how much of a file may be shown: what its writing goroutine
// vouches for, or up to the last newline of a file that nobody writes.
func (s *Service) durable(f disk.File, account ident.ID, writer, file string) (int64, error) {
	if writer == s.writer {
		if c := s.live(account); c != nil {
			log, anchors := c.Durable()
			if file == verify.LogFile {
				return log, nil
			}
			return anchors, nil
		}
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	return chain.LastLineEnd(f, size)
}

// live gives the open chain of an account, or nil.
func (s *Service) live(account ident.ID) *chain.Chain {
	s.mu.Lock()
	sl := s.chains[account]
	s.mu.Unlock()
	if sl == nil {
		return nil
	}
	select {
	case <-sl.ready:
		return sl.chain
	default:
		return nil
	}
}

// Folder tells where an account's chain by this process lies, for tools that
// verify in place.
func (s *Service) Folder(account ident.ID) string { return s.folder(account, s.writer) }

// ChainState is how one chain stands.
type ChainState = chain.State

// Chains tells how an account's chains stand, in the order of their writers.
// Of chains by other writers only the name is known here.
func (s *Service) Chains(account ident.ID) ([]ChainState, error) {
	writers, err := s.Writers(account)
	if err != nil {
		return nil, err
	}
	states := make([]ChainState, 0, len(writers))
	for _, w := range writers {
		st := ChainState{Writer: w}
		if w == s.writer {
			if c := s.live(account); c != nil {
				st.Stats = c.Stats()
			} else {
				st.Stopped = true
			}
		}
		states = append(states, st)
	}
	return states, nil
}
