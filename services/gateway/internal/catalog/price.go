package catalog

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// A Price is what one token costs, in pico-USD (10⁻¹² USD). One USD per million
// tokens is 1,000,000 of them.
type Price uint64

const (
	// priceMax is a million USD per million tokens: far above any vendor's
	// price, far below what could overflow.
	priceMax      = Price(1_000_000_000_000)
	priceDecimals = 6
	picoPerNano   = 1_000
)

// Prices are a model's prices per token. CachedInput is never above Input.
type Prices struct {
	Input, CachedInput, Output Price
}

// ErrCostRange says that a cost does not fit in a signed 64-bit number of
// nano-USD, some nine thousand million USD.
var ErrCostRange = errors.New("the cost does not fit in 64 bits of nano-USD")

// ParsePrice reads a decimal number of USD per million tokens, like 0.075,
// exactly. Signs, exponents, more than six decimals (one pico-USD per token)
// and more than a million USD are refused.
func ParsePrice(s string) (Price, error) {
	whole, frac, dot := strings.Cut(s, ".")
	if whole == "" || dot && frac == "" || !digits(whole) || !digits(frac) {
		return 0, errors.New("a price is a plain decimal number of USD per million tokens, like 0.15")
	}
	frac = strings.TrimRight(frac, "0")
	if len(frac) > priceDecimals {
		return 0, errors.New("a price has at most six decimals: finer than one pico-USD per token cannot be kept exactly")
	}
	var p Price
	for _, c := range []byte(whole + frac + strings.Repeat("0", priceDecimals-len(frac))) {
		if p = p*10 + Price(c-'0'); p > priceMax {
			return 0, errors.New("a price is at most 1000000 USD per million tokens")
		}
	}
	return p, nil
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// String gives USD per million tokens, exactly, as ParsePrice reads it. It is a
// valid JSON number.
func (p Price) String() string {
	const scale = 1_000_000
	s := fmt.Sprintf("%d.%06d", p/scale, p%scale)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalJSON gives USD per million tokens as an exact JSON number.
func (p Price) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

// Cost is what the tokens cost in nano-USD: one exact sum, rounded up once.
// cached is the part of prompt read from a cache; more than prompt counts as
// prompt. It fails with ErrCostRange only.
func (p Prices) Cost(prompt, cached, completion uint64) (uint64, error) {
	cached = min(cached, prompt)
	var sum wide
	sum.addProduct(prompt-cached, uint64(p.Input))
	sum.addProduct(cached, uint64(p.CachedInput))
	sum.addProduct(completion, uint64(p.Output))
	return sum.ceilDiv(picoPerNano)
}

// wide is a 128-bit sum of products. Three products of 64-bit numbers may
// exceed it, so it remembers a carry out.
type wide struct {
	hi, lo uint64
	over   bool
}

func (w *wide) addProduct(a, b uint64) {
	hi, lo := bits.Mul64(a, b)
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, carry = bits.Add64(w.hi, hi, carry)
	w.over = w.over || carry != 0
}

func (w *wide) ceilDiv(d uint64) (uint64, error) {
	if w.over || w.hi >= d {
		return 0, ErrCostRange
	}
	q, rem := bits.Div64(w.hi, w.lo, d)
	if q >= math.MaxInt64 {
		return 0, ErrCostRange
	}
	if rem != 0 {
		q++
	}
	return q, nil
}
