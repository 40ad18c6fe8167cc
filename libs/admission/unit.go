package admission

import (
	"errors"
	"math"
	"math/bits"
)

// CostUnits counts what is spent. The embedder says what a unit is (the
// gateway's is the nano-USD). Arithmetic on it is checked: overflow is an
// error, never a wrap or a clamp.
type CostUnits uint64

// MaxCostUnits is the largest amount any part of the platform stores.
const MaxCostUnits CostUnits = math.MaxInt64

// ErrOverflow says that a sum or product of units is above MaxCostUnits, or a
// difference below zero.
var ErrOverflow = errors.New("admission: units overflow")

// Add gives c + d, or ErrOverflow.
func (c CostUnits) Add(d CostUnits) (CostUnits, error) {
	sum, carry := bits.Add64(uint64(c), uint64(d), 0)
	if carry != 0 || CostUnits(sum) > MaxCostUnits {
		return 0, ErrOverflow
	}
	return CostUnits(sum), nil
}

// Sub gives c − d, or ErrOverflow when d is larger.
func (c CostUnits) Sub(d CostUnits) (CostUnits, error) {
	if d > c {
		return 0, ErrOverflow
	}
	return c - d, nil
}

// Mul gives c · n, or ErrOverflow.
func (c CostUnits) Mul(n uint64) (CostUnits, error) {
	hi, lo := bits.Mul64(uint64(c), n)
	if hi != 0 || CostUnits(lo) > MaxCostUnits {
		return 0, ErrOverflow
	}
	return CostUnits(lo), nil
}
