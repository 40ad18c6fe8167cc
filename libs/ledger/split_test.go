package ledger_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// TestSharesNeverExceedTheWhole: a share is the exact floor, for every quota up
// to the end of the range, and all of them together stay within it.
func TestSharesNeverExceedTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := ledger.QuotaSplit{Replicas: rapid.Int64Range(1, 1<<20).Draw(t, "replicas"), MarginPercent: rapid.Int64Range(1, 100).Draw(t, "margin")}
		whole := rapid.OneOf(rapid.Int64Range(0, math.MaxInt64), rapid.Int64Range(0, 1000), rapid.Just(int64(math.MaxInt64))).Draw(t, "whole")
		want := new(big.Int).Mul(big.NewInt(whole), big.NewInt(s.MarginPercent))
		want.Quo(want, big.NewInt(100*s.Replicas))
		share := s.Share(whole)
		if want.Cmp(big.NewInt(share)) != 0 {
			t.Fatalf("share of %d is %d, want %s", whole, share, want)
		}
		if all := new(big.Int).Mul(big.NewInt(share), big.NewInt(s.Replicas)); all.Cmp(big.NewInt(whole)) > 0 {
			t.Fatalf("%d shares of %d are %s", s.Replicas, whole, all)
		}
	})
	if got := (ledger.QuotaSplit{}).Share(7); got != 7 {
		t.Errorf("without a split the share of 7 is %d", got)
	}
}
