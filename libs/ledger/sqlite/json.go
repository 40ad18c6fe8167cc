package sqlite

import (
	"encoding/hex"
	"strconv"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger/internal/decide"
)

// scratchJSON writes the sets that queries are given: SQLite has no arrays, so
// they travel as JSON text. Its memory is reused.
type scratchJSON struct{ b []byte }

// ids writes an array of hex strings.
func (w *scratchJSON) ids(ids []ident.ID) string {
	return w.array(len(ids), func(b []byte, i int) []byte {
		b = append(b, '"')
		b = hex.AppendEncode(b, ids[i][:])
		return append(b, '"')
	})
}

// numbers writes an array of integers.
func (w *scratchJSON) numbers(ns []int64) string {
	return w.array(len(ns), func(b []byte, i int) []byte { return strconv.AppendInt(b, ns[i], 10) })
}

// pairs writes an array of [minute, account] pairs.
func (w *scratchJSON) pairs(ms []decide.MinuteKey) string {
	return w.array(len(ms), func(b []byte, i int) []byte {
		b = append(b, '[')
		b = strconv.AppendInt(b, ms[i].Minute, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, ms[i].AccountN, 10)
		return append(b, ']')
	})
}

// triples writes an array of [account, key hash, format] triples.
func (w *scratchJSON) triples(cs []decide.ClaimKey) string {
	return w.array(len(cs), func(b []byte, i int) []byte {
		b = append(b, '[')
		b = strconv.AppendInt(b, cs[i].AccountN, 10)
		b = append(b, `,"`...)
		b = hex.AppendEncode(b, cs[i].KeyHash[:])
		b = append(b, `","`...)
		b = append(b, cs[i].Format...) // CheckReserve lets nothing pass that would need quoting
		return append(b, `"]`...)
	})
}

func (w *scratchJSON) array(n int, element func(b []byte, i int) []byte) string {
	b := append(w.b[:0], '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, i)
	}
	w.b = append(b, ']')
	return string(w.b)
}
