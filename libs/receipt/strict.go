package receipt

import (
	"crypto/ed25519"
	"encoding/hex"
	"math/big"
	"slices"
)

// verifyStrict is Ed25519 verification that all strict implementations agree
// on: S below the group order, the cofactorless equation compared on R's
// encoding, no small-order key or R, no non-canonical point.
//
// crypto/ed25519 checks S, uses the cofactorless equation and compares
// encodings, which refuses a non-canonical R. It accepts small-order points
// and a non-canonical key; those are refused here.
func verifyStrict(key PublicKey, message []byte, sig [ed25519.SignatureSize]byte) bool {
	var r PublicKey
	copy(r[:], sig[:])
	if !isReduced(key) || isSmallOrder(key) || isSmallOrder(r) {
		return false
	}
	return ed25519.Verify(key[:], message, sig[:])
}

// isSmallOrder says whether a point is one of the eight whose order divides
// the cofactor. The sign bit is ignored: each listed y has only such points.
func isSmallOrder(p PublicKey) bool {
	p[31] &= 0x7f
	switch hex.EncodeToString(p[:]) {
	case
		"0100000000000000000000000000000000000000000000000000000000000000", // order 1
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // order 2
		"0000000000000000000000000000000000000000000000000000000000000000", // order 4
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", // order 8
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a": // order 8
		return true
	}
	return false
}

// isReduced says whether a point's y is below the field's prime, 2^255-19.
func isReduced(p PublicKey) bool {
	if p[31]&0x7f != 0x7f || p[0] < 0xed {
		return true
	}
	return slices.ContainsFunc(p[1:31], func(b byte) bool { return b != 0xff })
}

// isCanonicalPoint says whether p is the one encoding of a point of the curve.
// It is for key files, which are read rarely.
func isCanonicalPoint(p PublicKey) bool {
	if !isReduced(p) {
		return false
	}
	prime := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	mod := func(x *big.Int) *big.Int { return x.Mod(x, prime) }

	sign := p[31] >> 7
	p[31] &= 0x7f
	slices.Reverse(p[:])
	y := new(big.Int).SetBytes(p[:])
	y2 := mod(new(big.Int).Mul(y, y))

	// x² = (y²-1) / (d·y²+1), with d = -121665/121666: p is a point if that is
	// a square, and x = 0 has no sign.
	d := mod(new(big.Int).Mul(big.NewInt(-121665), new(big.Int).ModInverse(big.NewInt(121666), prime)))
	below := mod(new(big.Int).Add(new(big.Int).Mul(d, y2), big.NewInt(1)))
	x2 := mod(new(big.Int).Mul(new(big.Int).Sub(y2, big.NewInt(1)), new(big.Int).ModInverse(below, prime)))
	if x2.Sign() == 0 {
		return sign == 0
	}
	return big.Jacobi(x2, prime) == 1
}
