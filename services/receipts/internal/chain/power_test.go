package chain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

var errPower = errors.New("the power is off")

// memory is a disk that forgets what was not synced when the power fails. What
// was not synced is then half there: files keep some prefix of what was
// written, names are the old or the new ones.
type memory struct {
	mu      sync.Mutex
	files   map[string]*node // as programs see them
	durable map[string]*node // as the platter has them
	steps   int              // changes so far
	failAt  int              // the change at which the power fails; -1 never
	off     bool
	rng     *rand.Rand
}

type node struct {
	dir    bool
	data   []byte
	synced []byte
}

func newMemory(seed uint64) *memory {
	root := map[string]*node{"/root": {dir: true}} // made durable by the service
	return &memory{
		files: root, durable: maps.Clone(root), failAt: -1,
		rng: rand.New(rand.NewPCG(seed, 1)),
	}
}

// step counts a change. It is an error when the power fails now or has failed.
func (m *memory) step() error {
	if m.off {
		return errPower
	}
	if m.steps++; m.steps-1 == m.failAt {
		m.off = true
		return errPower
	}
	return nil
}

// reboot gives the disk that the machine finds when the power is back.
func (m *memory) reboot() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]*node{}
	paths := maps.Clone(m.files)
	maps.Copy(paths, m.durable)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		n := m.durable[path]
		if m.files[path] != n && m.rng.IntN(2) == 0 {
			n = m.files[path]
		}
		parent := filepath.Dir(path)
		if n == nil || parent != "/" && found[parent] == nil {
			continue
		}
		data := n.synced
		if bytes.HasPrefix(n.data, n.synced) {
			data = n.data[:len(n.synced)+m.rng.IntN(len(n.data)-len(n.synced)+1)]
		} else if m.rng.IntN(2) == 0 {
			data = n.data // a cut that reached the platter
		}
		found[path] = &node{dir: n.dir, data: bytes.Clone(data), synced: bytes.Clone(data)}
	}
	return &memory{files: found, durable: maps.Clone(found), failAt: -1, rng: m.rng}
}

// dump is every file's contents.
func (m *memory) dump() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for path, n := range m.files {
		if !n.dir {
			out[path] = string(n.data)
		}
	}
	return out
}

func (m *memory) put(path string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mkdirAll(filepath.Dir(path))
	m.files[path] = &node{data: bytes.Clone(data), synced: bytes.Clone(data)}
	m.durable = maps.Clone(m.files)
}

func (m *memory) mkdirAll(dir string) {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if m.files[dir] == nil {
			m.files[dir] = &node{dir: true}
		}
	}
}

func (m *memory) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return err
	}
	m.mkdirAll(dir)
	return nil
}

func (m *memory) Names(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for path := range m.files {
		if filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *memory) open(name string, create, empty bool) (disk.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return nil, errPower
	}
	n := m.files[name]
	if n == nil && !create {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if n == nil || empty {
		if err := m.step(); err != nil {
			return nil, err
		}
		n = &node{}
		m.files[name] = n
	}
	return &memoryFile{m, n}, nil
}

func (m *memory) Open(name string) (disk.File, error)    { return m.open(name, true, false) }
func (m *memory) Read(name string) (disk.File, error)    { return m.open(name, false, false) }
func (m *memory) Replace(name string) (disk.File, error) { return m.open(name, true, true) }

func (m *memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return err
	}
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

type info struct {
	name string
	size int64
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0o600 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }

func (m *memory) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.files[name]
	if n == nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return info{filepath.Base(name), int64(len(n.data))}, nil
}

func (m *memory) Truncate(name string, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return err
	}
	m.files[name].data = m.files[name].data[:size]
	return nil
}

func (m *memory) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return err
	}
	for path := range m.durable {
		if filepath.Dir(path) == dir {
			delete(m.durable, path)
		}
	}
	for path, n := range m.files {
		if filepath.Dir(path) == dir {
			m.durable[path] = n
		}
	}
	return nil
}

type memoryFile struct {
	m *memory
	n *node
}

func (f *memoryFile) Write(p []byte) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.off {
		return 0, errPower
	}
	if err := f.m.step(); err != nil {
		n := f.m.rng.IntN(len(p) + 1)
		f.n.data = append(bytes.Clone(f.n.data), p[:n]...)
		return n, err
	}
	f.n.data = append(bytes.Clone(f.n.data), p...)
	return len(p), nil
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.off {
		return 0, errPower
	}
	return bytes.NewReader(f.n.data).ReadAt(p, off)
}

func (f *memoryFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.step(); err != nil {
		return err
	}
	f.n.synced = bytes.Clone(f.n.data)
	return nil
}

func (f *memoryFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.off {
		return 0, errPower
	}
	return int64(len(f.n.data)), nil
}

func (f *memoryFile) Close() error { return nil }

var (
	_ disk.Disk = (*memory)(nil)
	_ io.Closer = (*memoryFile)(nil)
)

// story is what a run of a chain wrote and was told is durable.
type story struct{ acknowledged []string }

// tell opens a chain and writes allows, a deny and outcomes until the power
// fails or all is told.
func (s *story) tell(t *testing.T, m *memory, n int) error {
	t.Helper()
	o := options(m)
	o.AnchorEvery = 3
	c, err := Open(o)
	if err != nil {
		return err
	}
	for i := range n {
		e := entry(len(s.acknowledged)*100 + i)
		id, err := appendOne(t, c, e)
		if err != nil {
			return errors.Join(err, c.Close(t.Context()))
		}
		s.acknowledged = append(s.acknowledged, id)
		if i%2 == 1 {
			continue
		}
		out := outcome(id)
		if id, err = appendOne(t, c, out); err != nil {
			return errors.Join(err, c.Close(t.Context()))
		}
		s.acknowledged = append(s.acknowledged, id)
	}
	return c.Close(t.Context())
}

// recoverySteps is how many changes an opening with a torn tail makes.
const recoverySteps = 18

// TestAPowerCutLosesNothingAcknowledged cuts the power at every step of a
// chain's life, and again at every step of the recovery that follows.
func TestAPowerCutLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	clean := newMemory(0)
	if err := (&story{}).tell(t, clean, 4); err != nil {
		t.Fatal(err)
	}
	recovered, refused := 0, 0
	for failAt := range clean.steps {
		for seed := range uint64(recoverySteps) {
			m := newMemory(seed)
			m.failAt = failAt
			s := &story{}
			if err := s.tell(t, m, 4); err == nil {
				t.Fatalf("step %d: the power failed and nobody noticed", failAt)
			}
			m = m.reboot()
			m.failAt = (int(seed) + failAt) % recoverySteps
			_ = (&story{acknowledged: s.acknowledged}).tell(t, m, 0)
			m = m.reboot()

			before := m.dump()
			c, err := Open(options(m))
			if errors.Is(err, ErrRefused) {
				if !strings.Contains(err.Error(), "whole record") || !maps.Equal(before, m.dump()) {
					t.Fatalf("step %d, seed %d: %v; changed: %v", failAt, seed, err, !maps.Equal(before, m.dump()))
				}
				refused++
				continue
			}
			if err != nil {
				t.Fatalf("step %d, seed %d: %v", failAt, seed, err)
			}
			recovered += int(c.Stats().Recoveries)
			s.check(t, m, fmt.Sprintf("step %d, seed %d", failAt, seed))
			if _, err := appendOne(t, c, entry(9999)); err != nil {
				t.Fatalf("step %d, seed %d: append after recovery: %v", failAt, seed, err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			again := m.dump()
			records := strings.Split(again[dir+"/recovery.jsonl"], "\n")
			if slices.Sort(records); len(slices.Compact(slices.Clone(records))) != len(records) {
				t.Fatalf("step %d, seed %d: recorded twice: %v", failAt, seed, records)
			}
			if c, err = Open(options(m)); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(t.Context()); err != nil || !maps.Equal(again, m.dump()) {
				t.Fatalf("step %d, seed %d: opening again changed something: %v", failAt, seed, err)
			}
		}
	}
	if recovered == 0 || clean.steps < 30 {
		t.Errorf("%d torn tails recovered (%d refused) over %d steps: the test cuts nothing", recovered, refused, clean.steps)
	}
}

// check reads the disk with the independent verifier: everything that was
// acknowledged is there, in order.
func (s *story) check(t *testing.T, m *memory, when string) {
	t.Helper()
	entries := checkIndependently(t, m.dump(), when)
	at := 0
	for _, e := range entries {
		if at < len(s.acknowledged) && e.ID == s.acknowledged[at] {
			at++
		}
	}
	if at != len(s.acknowledged) {
		t.Fatalf("%s: acknowledged %d, found %d of them", when, len(s.acknowledged), at)
	}
}

// TestAClosedChainIsDurable: what a clean end leaves survives a power cut right
// after it, the last anchor included.
func TestAClosedChainIsDurable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		m := newMemory(seed)
		if err := (&story{}).tell(t, m, 4); err != nil {
			t.Fatal(err)
		}
		if before := m.dump(); !maps.Equal(before, m.reboot().dump()) {
			t.Fatalf("seed %d: a closed chain lost something", seed)
		}
	}
}

// TestARecoveryIsDurableBeforeTheChainOpens: the fragment, its record and the
// cut survive a power cut right after Open.
func TestARecoveryIsDurableBeforeTheChainOpens(t *testing.T) {
	t.Parallel()
	whole := written(t)
	for seed := range uint64(20) {
		m := newMemory(seed)
		for path, data := range whole {
			m.put(path, []byte(data))
		}
		m.put(dir+"/receipts.jsonl", []byte(whole[dir+"/receipts.jsonl"]+`{"torn`))
		c := mustOpen(t, options(m))
		before := m.dump()
		if len(before) != len(whole)+2 || before[dir+"/receipts.jsonl"] != whole[dir+"/receipts.jsonl"] {
			t.Fatal("nothing was recovered")
		}
		if after := m.reboot().dump(); !maps.Equal(before, after) {
			t.Fatalf("seed %d: a recovery was lost: %v", seed, slices.Sorted(maps.Keys(after)))
		}
		mustClose(t, c)
	}
}
