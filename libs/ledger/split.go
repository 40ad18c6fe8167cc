package ledger

// QuotaSplit divides what a tenant may use among replicas that share no ledger,
// each on its own SQLite file. The zero value divides nothing.
type QuotaSplit struct {
	Replicas      int64 // the fleet's; 0: no split
	MarginPercent int64 // of every quota that the fleet uses together, 1 to 100
}

// Set says whether there is a split.
func (s QuotaSplit) Set() bool { return s.Replicas > 0 }

// Share is one replica's part of a quota, rounded down, so that Replicas shares
// never exceed it: floor(whole · MarginPercent% / Replicas). Without a split it
// is the whole; of nothing it is nothing.
func (s QuotaSplit) Share(whole int64) int64 {
	if !s.Set() {
		return whole
	}
	// By quotient and remainder, so that no product leaves the range.
	parts := 100 * s.Replicas
	return whole/parts*s.MarginPercent + whole%parts*s.MarginPercent/parts
}
