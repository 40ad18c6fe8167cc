package chain

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

// BenchmarkAppend is the whole chain, with hashing, links, repeats, anchors
// every 1000 entries and their read-back, for a number of callers in flight.
//
// Its control only signs, appends and syncs as many receipts, a batch of that
// number at a time. The two take turns, so that a busy machine disturbs both.
func BenchmarkAppend(b *testing.B) {
	const rounds = 20 // receipts of each caller, each turn
	for _, callers := range []int{1, 16, 128} {
		b.Run("inflight="+strconv.Itoa(callers), func(b *testing.B) {
			d := &counting{}
			c, control := openChain(b, d), openControl(b, callers)
			var inChain, inControl time.Duration
			for b.Loop() {
				before := b.Elapsed()
				control.write(b, rounds)
				between := b.Elapsed()
				appendFrom(b, c, callers, rounds)
				inControl += between - before
				inChain += b.Elapsed() - between
			}
			receipts := float64(b.N * callers * rounds)
			b.ReportMetric(receipts/inChain.Seconds(), "receipts/s")
			b.ReportMetric(receipts/inControl.Seconds(), "control/s")
			b.ReportMetric(receipts/float64(d.syncs.Load()), "receipts/sync")
			b.ReportMetric(100*inControl.Seconds()/inChain.Seconds(), "%-of-control")
			if err := c.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// counting is the real disk, with a count of syncs.
type counting struct {
	disk.OS
	syncs atomic.Int64
}

type countingFile struct {
	disk.File
	d *counting
}

func (d *counting) Open(name string) (disk.File, error) {
	f, err := d.OS.Open(name)
	return countingFile{f, d}, err
}

func (f countingFile) Sync() error {
	f.d.syncs.Add(1)
	return f.File.Sync()
}

func openChain(b *testing.B, d disk.Disk) *Chain {
	b.Helper()
	o := options(d)
	o.Dir = filepath.Join(b.TempDir(), "account", "writer")
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		b.Fatal(err)
	}
	c, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// appendFrom lets each caller write one receipt after the other.
func appendFrom(b *testing.B, c *Chain, callers, each int) {
	b.Helper()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				e := entry(1)
				e.Request = ident.New()
				p, err := c.Submit(e)
				if err == nil {
					_, err = p.Wait(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

type control struct {
	file   disk.File
	signer *receipt.Signer
	lines  []*receipt.Line
	buf    []byte
}

func openControl(b *testing.B, batch int) *control {
	b.Helper()
	f, err := disk.OS{}.Open(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	draft, err := receipt.NewDraft(entry(1))
	if err != nil {
		b.Fatal(err)
	}
	c := &control{file: f, signer: receipt.GenerateSigner()}
	for range batch {
		c.lines = append(c.lines, draft.Link(""))
	}
	return c
}

func (c *control) write(b *testing.B, batches int) {
	b.Helper()
	for range batches {
		c.sign()
		c.buf = c.buf[:0]
		for _, l := range c.lines {
			c.buf = l.Append(c.buf)
		}
		if _, err := c.file.Write(c.buf); err != nil {
			b.Fatal(err)
		}
		if err := c.file.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// sign signs on all processors, as the chain does.
func (c *control) sign() {
	work := make(chan *receipt.Line, len(c.lines))
	for _, l := range c.lines {
		work <- l
	}
	close(work)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() { sign(c.signer, work) })
	}
	wg.Wait()
}
