package verify

import (
	"bytes"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/receipt"
)

// BenchmarkRead verifies a signed chain of 2,000 allows, all checks on.
func BenchmarkRead(b *testing.B) {
	const entries = 2000
	signer, head := receipt.GenerateSigner(), ""
	var log []byte
	for i := range entries {
		d, err := receipt.NewDraft(&receipt.Entry{
			Account: ident.ID{1}, Slug: "acme", Request: ident.ID{1, byte(i), byte(i >> 8)}, Kind: receipt.Allow,
			Model: "mock/model", CallDigest: receipt.Digest{1}, At: time.Unix(1, 0),
		})
		if err != nil {
			b.Fatal(err)
		}
		l := d.Link(head)
		signer.SignLine(l)
		log, head = l.Append(log), l.ID
	}
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		r, err := Read(Input{Log: bytes.NewReader(log), Keys: bytes.NewReader(signer.Public().File()), RequireSignatures: true})
		if err != nil || !r.OK || r.Entries != entries {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(entries*b.N)/b.Elapsed().Seconds(), "entries/s")
}
