package admission

import (
	"encoding/binary"
	"math/bits"
)

// table maps principals to their cells: open addressing with linear probing,
// at most half full. A published table is immutable. Principals are keyed
// fingerprints, so a cheap mix of their bits is hash enough, and a client
// can't choose where its principal falls; a Go map hashes and probes for twice
// as long.
type table struct {
	mask  uint64
	used  int
	slots []tableSlot
}

type tableSlot struct {
	cell      *cell // nil ends a probe
	principal Principal
}

// tableMin is the size of the smallest table; a power of two.
const tableMin = 8

// hashOf spreads principals; the top byte chooses a shard, the low bits a slot.
func hashOf(p *Principal) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := (binary.LittleEndian.Uint64(p[:8]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(p[8:])*odd, 32)) * odd
	return h ^ h>>32
}

// get finds the cell of p, whose hash is h; nil if there is none.
func (t *table) get(p *Principal, h uint64) *cell {
	if t == nil {
		return nil
	}
	for i := h; ; i++ { // ends: half of the slots are empty
		s := &t.slots[i&t.mask]
		if s.cell == nil || s.principal == *p {
			return s.cell
		}
	}
}

// room gives a private copy of t with room for one more.
func (t *table) room() *table {
	size := tableMin
	if t != nil {
		for size = len(t.slots); 2*(t.used+1) > size; {
			size *= 2
		}
	}
	next := &table{mask: uint64(size - 1), slots: make([]tableSlot, size)} //nolint:gosec // a power of two
	if t != nil {
		for i := range t.slots {
			if s := &t.slots[i]; s.cell != nil {
				next.put(s.principal, s.cell)
			}
		}
	}
	return next
}

// without gives a private copy of t that lacks p.
func (t *table) without(p *Principal) *table {
	next := &table{mask: t.mask, slots: make([]tableSlot, len(t.slots))}
	for i := range t.slots {
		if s := &t.slots[i]; s.cell != nil && s.principal != *p {
			next.put(s.principal, s.cell)
		}
	}
	return next
}

// put adds a principal that isn't there, to a private table with room.
func (t *table) put(p Principal, c *cell) {
	i := hashOf(&p)
	for t.slots[i&t.mask].cell != nil {
		i++
	}
	t.slots[i&t.mask] = tableSlot{c, p}
	t.used++
}
