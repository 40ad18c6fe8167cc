// Package receipts is the service that keeps signed evidence.
//
// One chain per account and writer lives in a folder of its own,
// <directory>/<account>/<writer>/, complete on its own: receipts.jsonl,
// anchor.jsonl, signing.pub, and signing.priv at mode 0600, which is never
// handed out. A writer is one running copy of this service; its name is made
// once and kept in <directory>/writer. One lock guards the directory.
//
// Promises: Append returns only what is durable (see internal/chain for
// grouping and for how repeats are found). Chains don't know each other: one
// that stops leaves the others as they are.
//
// Failure: a start refuses evidence that doesn't verify, naming every chain.
// A failed write stops that chain until a restart. There is no setting that
// lets work go on without its evidence.
//
// Concurrency: everything but Open and Close may be called from anywhere
// between the two.
package receipts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/metric"

	"github.com/tollgate-platform/tollgate/libs/chassis/run"
	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/libs/receipt/verify"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/chain"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/rpc"
)

// Bounds of a service.
const (
	syncMax  = 16     // chains that sync at the same time
	chainMax = 16_384 // chains open for writing
)

// Deps are given, and not closed by the service.
type Deps struct {
	Clock clock.Clock
	Log   *slog.Logger
	Meter metric.Meter
	// Label names an account in metrics, from configuration. Nil names it by
	// its id.
	Label func(ident.ID) string
	// Interceptors go around every call, the first outermost, as tracing does.
	Interceptors []connect.Interceptor
}

// Service keeps evidence. It is a receipt.Appender.
type Service struct {
	cfg  Config
	deps Deps
	disk disk.Disk

	syncs   chan struct{}
	metrics metric.Registration

	mu     sync.Mutex // guards what follows
	opened bool
	lock   *os.File
	writer string
	chains map[ident.ID]*slot
}

// slot is a chain that is open, or being opened: ready is closed when chain
// or err is set.
type slot struct {
	ready chan struct{}
	chain *chain.Chain
	err   error
}

var _ receipt.Appender = (*Service)(nil)

// New checks the configuration. It opens nothing and starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Clock == nil || deps.Log == nil || deps.Meter == nil {
		return nil, errors.New("receipts: Clock, Log and Meter must be given")
	}
	if deps.Label == nil {
		deps.Label = ident.ID.String
	}
	s := &Service{cfg: cfg, deps: deps, disk: disk.OS{}, syncs: make(chan struct{}, syncMax), chains: map[ident.ID]*slot{}}
	if err := s.instrument(); err != nil {
		return nil, err
	}
	return s, nil
}

// Component is the service as the chassis runs it.
func (s *Service) Component() run.Component {
	return run.Component{
		Name:    "receipts",
		Routes:  rpc.Routes(s, s.deps.Log, s.deps.Interceptors...),
		Roles:   rpc.Roles(),
		Open:    s.Open,
		Workers: []run.Worker{s.Run},
		Ready:   s.Ready,
		Close:   s.Close,
	}
}

// Enabled says whether evidence is kept at all.
func (s *Service) Enabled() bool { return s.cfg.Enabled }

// Open locks the directory and verifies every chain in it. It refuses, naming
// all of them, when one doesn't verify. Disabled, it does nothing.
func (s *Service) Open(ctx context.Context) (err error) {
	if !s.cfg.Enabled {
		return nil
	}
	root := s.cfg.Directory
	if err := s.disk.MkdirAll(root); err != nil {
		return fmt.Errorf("receipts.directory: %w", err)
	}
	lock, err := disk.Lock(filepath.Join(root, "lock"))
	if err != nil {
		return fmt.Errorf("receipts.directory: %w", err)
	}
	s.lock = lock
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	if err := s.disk.SyncDir(filepath.Dir(filepath.Clean(root))); err != nil {
		return fmt.Errorf("receipts.directory: %w", err)
	}
	if s.writer, err = s.loadWriter(); err != nil {
		return fmt.Errorf("receipts.directory: %w", err)
	}
	s.mu.Lock()
	s.opened = true
	s.mu.Unlock()
	return s.openAll(ctx)
}

// loadWriter reads this copy's name, or makes it.
func (s *Service) loadWriter() (string, error) {
	name := filepath.Join(s.cfg.Directory, "writer")
	text, err := disk.ReadFile(s.disk, name, 256)
	if errors.Is(err, fs.ErrNotExist) {
		id := ident.New().String()
		return id, disk.WriteFile(s.disk, name, []byte(id+"\n"))
	}
	if err != nil {
		return "", err
	}
	id, err := ident.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return id.String(), nil
}

// openAll opens this writer's chains and verifies those of others.
func (s *Service) openAll(ctx context.Context) error {
	names, err := s.disk.Names(s.cfg.Directory)
	if err != nil {
		return fmt.Errorf("receipts.directory: %w", err)
	}
	var faults []error
	for _, name := range names {
		account, err := ident.Parse(name)
		if err != nil {
			continue // the lock, the writer's name, what else is kept there
		}
		writers, err := s.Writers(account)
		if err != nil {
			return err
		}
		for _, w := range writers {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if w == s.writer {
				_, err = s.chain(ctx, account)
			} else {
				err = s.verifyOther(account, w)
			}
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

func (s *Service) verifyOther(account ident.ID, writer string) error {
	r, err := verify.Dir(s.folder(account, writer), verify.Options{RequireSignatures: true})
	if err != nil {
		return fmt.Errorf("chain of %s by %s: %w", account, writer, err)
	}
	if !r.OK {
		return fmt.Errorf("chain of %s by %s: %s", account, writer, strings.Join(r.Errors, "; "))
	}
	return nil
}

func (s *Service) folder(account ident.ID, writer string) string {
	return filepath.Join(s.cfg.Directory, account.String(), writer)
}

// Append writes evidence durably; see receipt.Appender. An account's first
// entry makes its chain. An outcome whose allow another writer holds is
// refused: it belongs there.
func (s *Service) Append(ctx context.Context, e receipt.Entry) (receipt.Receipt, error) {
	p, err := s.submit(ctx, &e)
	if err != nil {
		return receipt.Receipt{}, err
	}
	return s.wait(ctx, p)
}

// Result is what became of one entry of AppendAll.
type Result = chain.Result

// AppendAll writes entries in their order, each account's in one go, and
// answers each by itself. It takes the entries over.
func (s *Service) AppendAll(ctx context.Context, entries []receipt.Entry) []Result {
	results := make([]Result, len(entries))
	pending := make([]*chain.Pending, len(entries))
	for i := range entries {
		pending[i], results[i].Err = s.submit(ctx, &entries[i])
	}
	for i, p := range pending {
		if p != nil {
			results[i].Receipt, results[i].Err = s.wait(ctx, p)
		}
	}
	return results
}

func (s *Service) submit(ctx context.Context, e *receipt.Entry) (*chain.Pending, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	c, err := s.chain(ctx, e.Account)
	if err != nil {
		return nil, receipt.Unavailable(err)
	}
	if e.Kind == receipt.Outcome && e.Writer != s.writer {
		return nil, receipt.Unavailable(fmt.Errorf("the allow is in the chain of writer %q, this is %q", e.Writer, s.writer))
	}
	return c.Submit(e)
}

func (s *Service) wait(ctx context.Context, p *chain.Pending) (receipt.Receipt, error) {
	id, err := p.Wait(ctx)
	if err != nil {
		return receipt.Receipt{}, err
	}
	return receipt.Receipt{ID: id, Writer: s.writer}, nil
}

// chain gives an account's chain, opening it on first use. A chain that could
// not be opened stays so until a restart.
func (s *Service) chain(ctx context.Context, account ident.ID) (*chain.Chain, error) {
	sl, err := s.slot(account)
	if err != nil {
		return nil, err
	}
	select {
	case <-sl.ready:
		return sl.chain, sl.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Service) slot(account ident.ID) (*slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		return nil, errors.New("receipts are disabled, or the service is not open")
	}
	if sl := s.chains[account]; sl != nil {
		return sl, nil
	}
	if len(s.chains) == chainMax {
		return nil, errors.New("too many chains")
	}
	sl := &slot{ready: make(chan struct{})}
	s.chains[account] = sl
	go s.fill(account, sl)
	return sl, nil
}

func (s *Service) fill(account ident.ID, sl *slot) {
	defer close(sl.ready)
	sl.chain, sl.err = chain.Open(chain.Options{
		Dir:         s.folder(account, s.writer),
		Account:     account,
		AnchorEvery: uint64(s.cfg.AnchorEvery), //nolint:gosec // Validate keeps it positive
		SinceAnchor: s.cfg.StartupVerify == VerifySinceAnchor,
		Disk:        s.disk,
		Clock:       s.deps.Clock,
		Log:         s.deps.Log,
		Syncs:       s.syncs,
	})
	if sl.err != nil {
		s.deps.Log.Warn("receipt chain not opened", slog.String("account", account.String()), slog.Any("error", sl.err))
	}
}

// Run anchors every chain that has new entries, each anchor interval, until
// ctx is done.
func (s *Service) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Duration(s.cfg.AnchorIntervalSecs) * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			for _, e := range s.settled() {
				if e.chain != nil {
					e.chain.Anchor()
				}
			}
		}
	}
}

// Ready says why nothing can be written, or nil. Stopped chains don't make the
// service unready: Status lists them.
func (s *Service) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Enabled && !s.opened {
		return errors.New("receipts are not open")
	}
	return nil
}

// Close writes what waits, anchors every chain and frees the directory. It
// works twice, and without Open.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	s.opened = false
	chains := s.chains
	s.chains = map[ident.ID]*slot{}
	lock := s.lock
	s.lock = nil
	s.mu.Unlock()

	var faults []error
	for _, account := range sortedAccounts(chains) {
		sl := chains[account]
		select {
		case <-sl.ready:
		case <-ctx.Done():
			faults = append(faults, fmt.Errorf("close the chain of %s: %w", account, ctx.Err()))
			continue
		}
		if sl.chain != nil {
			faults = append(faults, sl.chain.Close(ctx))
		}
	}
	if lock != nil {
		faults = append(faults, lock.Close())
	}
	return errors.Join(faults...)
}

func sortedAccounts(chains map[ident.ID]*slot) []ident.ID {
	accounts := make([]ident.ID, 0, len(chains))
	for a := range chains {
		accounts = append(accounts, a)
	}
	slices.SortFunc(accounts, func(a, b ident.ID) int { return strings.Compare(string(a[:]), string(b[:])) })
	return accounts
}
