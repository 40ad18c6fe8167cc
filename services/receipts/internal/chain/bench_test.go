package chain

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/services/receipts/internal/disk"
)

// BenchmarkControl only signs, appends and syncs, a batch of the given size at
// a time: what the machine can do for the chain below.
func BenchmarkControl(b *testing.B) {
	for _, size := range []int{1, 128} {
		b.Run("batch="+strconv.Itoa(size), func(b *testing.B) {
			f, err := disk.OS{}.Open(filepath.Join(b.TempDir(), "log"))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			draft, err := receipt.NewDraft(entry(1))
			if err != nil {
				b.Fatal(err)
			}
			signer, lines := receipt.GenerateSigner(), make([]*receipt.Line, size)
			for i := range lines {
				lines[i] = draft.Link("")
			}
			c := &Chain{signer: signer}
			var buf []byte
			for done := 0; done < b.N; done += size {
				c.sign(lines)
				buf = buf[:0]
				for _, l := range lines {
					buf = l.Append(buf)
				}
				if _, err := f.Write(buf); err != nil {
					b.Fatal(err)
				}
				if err := f.Sync(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
		})
	}
}

// BenchmarkAppend is the whole chain, with hashing, links, repeats, anchors
// every 1000 entries and their read-back, for a number of callers in flight.
func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 128} {
		b.Run("inflight="+strconv.Itoa(callers), func(b *testing.B) {
			o := options(disk.OS{})
			o.Dir = filepath.Join(b.TempDir(), "account", "writer")
			if err := os.MkdirAll(o.Dir, 0o700); err != nil {
				b.Fatal(err)
			}
			c, err := Open(o)
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			var next atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
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
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "receipts/s")
			b.StopTimer()
			if err := c.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
