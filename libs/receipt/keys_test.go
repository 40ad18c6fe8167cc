package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
)

func point(t *testing.T, text string) (k PublicKey) {
	t.Helper()
	if !decodeHex(k[:], text) {
		t.Fatalf("bad point %q", text)
	}
	return k
}

// The eight small-order points, and encodings that reduce to some of them.
func smallOrder() []string {
	return []string{
		"0100000000000000000000000000000000000000000000000000000000000000",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0000000000000000000000000000000000000000000000000000000000000080",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	}
}

func nonCanonical() []string {
	return []string{
		"0100000000000000000000000000000000000000000000000000000000000080", // x = 0 with a sign
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff", // the same
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p+1
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	}
}

// TestASmallOrderKeyVerifiesNothing: crypto/ed25519 accepts R = identity, S = 0
// under the identity key for every message.
func TestASmallOrderKeyVerifiesNothing(t *testing.T) {
	t.Parallel()
	accepted := 0
	for _, key := range append(smallOrder(), nonCanonical()...) {
		for _, r := range append(smallOrder(), nonCanonical()...) {
			k, rp := point(t, key), point(t, r)
			var sig [64]byte
			copy(sig[:], rp[:])
			for message := range byte(8) {
				if verifyStrict(k, []byte{message}, sig) {
					t.Fatalf("key %s, R %s verified", key, r)
				}
				if ed25519.Verify(k[:], []byte{message}, sig[:]) {
					accepted++
				}
			}
		}
	}
	if accepted == 0 {
		t.Error("crypto/ed25519 refuses all of these by itself: the test shows nothing")
	}
}

func groupOrder() *big.Int {
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	return order
}

func littleEndian(b []byte) *big.Int {
	b = slices.Clone(b)
	slices.Reverse(b)
	return new(big.Int).SetBytes(b)
}

func toLittleEndian(dst []byte, x *big.Int) {
	x.FillBytes(dst)
	slices.Reverse(dst)
}

// TestASmallOrderRIsRefused under an honest key: with R the identity and
// S = k·a the equation S·B = k·A + R holds, and only the key's holder can make
// it. crypto/ed25519 accepts it, strict verifiers don't.
func TestASmallOrderRIsRefused(t *testing.T) {
	t.Parallel()
	signer, message := GenerateSigner(), []byte("m")
	secret := sha512.Sum512(signer.private.Seed())
	secret[0] &= 248
	secret[31] = secret[31]&63 | 64
	var sig [64]byte
	r := point(t, smallOrder()[0])
	copy(sig[:], r[:])
	public := signer.Public()
	challenge := sha512.Sum512(slices.Concat(r[:], public[:], message))
	s := new(big.Int).Mul(littleEndian(challenge[:]), littleEndian(secret[:32]))
	toLittleEndian(sig[32:], s.Mod(s, groupOrder()))
	if !ed25519.Verify(public[:], message, sig[:]) {
		t.Fatal("the equation doesn't hold: the test shows nothing")
	}
	if verifyStrict(public, message, sig) {
		t.Error("verified")
	}
}

// TestSBelowTheGroupOrder: S and S+L are the same signature twice.
func TestSBelowTheGroupOrder(t *testing.T) {
	t.Parallel()
	signer := GenerateSigner()
	message := entryMessage(signer.KeyID(), "x")
	var sig [64]byte
	copy(sig[:], ed25519.Sign(signer.private, message))
	if !verifyStrict(signer.Public(), message, sig) {
		t.Fatal("an honest signature was refused")
	}
	toLittleEndian(sig[32:], new(big.Int).Add(littleEndian(sig[32:]), groupOrder()))
	if verifyStrict(signer.Public(), message, sig) {
		t.Error("S above the group order verified")
	}
}

func TestSignaturesAreBoundToTheirKind(t *testing.T) {
	t.Parallel()
	s := GenerateSigner()
	l := &Line{ID: "receipt:x"}
	s.SignLine(l)
	a := s.Anchor(7, "receipt:x")
	k := s.Public()
	if !k.VerifyEntry("receipt:x", *l.Signature) || !k.VerifyAnchor(7, "receipt:x", *a.Signature) {
		t.Fatal("own signatures refused")
	}
	for what, ok := range map[string]bool{
		"another entry":         k.VerifyEntry("receipt:y", *l.Signature),
		"another count":         k.VerifyAnchor(8, "receipt:x", *a.Signature),
		"an anchor as an entry": k.VerifyEntry("receipt:x", *a.Signature),
		"an entry as an anchor": k.VerifyAnchor(7, "receipt:x", *l.Signature),
		"another key":           GenerateSigner().Public().VerifyEntry("receipt:x", *l.Signature),
		"upper case":            k.VerifyEntry("receipt:x", strings.ToUpper(*l.Signature)),
		"upper-case digits":     k.VerifyEntry("receipt:x", "ed25519:"+strings.ToUpper((*l.Signature)[8:])),
		"no prefix":             k.VerifyEntry("receipt:x", (*l.Signature)[8:]),
		"something behind":      k.VerifyEntry("receipt:x", *l.Signature+"00"),
		"nothing":               k.VerifyEntry("receipt:x", ""),
	} {
		if ok {
			t.Errorf("%s verified", what)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	s := GenerateSigner()
	back, err := ParseSigner(append([]byte(" \n"), append(s.PrivateFile(), " \t"...)...))
	if err != nil || back.KeyID() != s.KeyID() || !strings.HasPrefix(s.KeyID(), "key:sha3-256:") {
		t.Fatal(back, err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(text, hex.EncodeToString(s.private.Seed())) || !strings.Contains(text, s.KeyID()) {
		t.Errorf("a signer prints as %s", text)
	}
	for _, bad := range []string{"", "ed25519-private:", "ed25519-private:" + strings.Repeat("0", 63), "ed25519-private:" + strings.Repeat("A", 64), string(s.Public().File())} {
		if _, err := ParseSigner([]byte(bad)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}

	pub := strings.TrimSpace(string(s.Public().File()))
	through := "receipt:sha3-256:" + strings.Repeat("0a", 32)
	other := GenerateSigner().Public()
	keys, err := ParseTrustedKeys([]byte("# ours\n\n  " + pub + "\tthrough  " + through + " # old\r\n" + string(other.File())))
	want := []TrustedKey{{s.Public(), through}, {other, ""}}
	if err != nil || !slices.Equal(keys, want) {
		t.Fatal(keys, err)
	}
	bad := map[string]string{
		"nothing":            "",
		"only a comment":     "# " + pub,
		"twice":              pub + "\n" + pub + " through " + through,
		"a bad cut-off":      pub + " through " + through[:80],
		"another word":       pub + " until " + through,
		"a word too many":    pub + " through " + through + " x",
		"a cut-off missing":  pub + " through",
		"upper case":         strings.ToUpper(pub),
		"a private key":      string(s.PrivateFile()),
		"not on the curve":   publicPrefix + "0200000000000000000000000000000000000000000000000000000000000000",
		"larger than a file": strings.Repeat("#", MaxKeyFile+1),
	}
	for _, p := range nonCanonical() {
		bad["non-canonical "+p] = publicPrefix + p
	}
	for what, text := range bad {
		if keys, err := ParseTrustedKeys([]byte(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v %v", what, keys, err)
		}
	}
}

// TestEveryRealKeyIsACanonicalPoint guards the curve arithmetic.
func TestEveryRealKeyIsACanonicalPoint(t *testing.T) {
	t.Parallel()
	for range 200 {
		k := GenerateSigner().Public()
		if !isCanonicalPoint(k) || !isReduced(k) || isSmallOrder(k) {
			t.Fatalf("%x", k)
		}
	}
	off := 0
	for i := range byte(200) {
		k := PublicKey{0: 2, 1: i}
		// crypto/ed25519 can't be asked directly; a key that isn't a point
		// verifies nothing, so only the count is checked: about half are points.
		if !isCanonicalPoint(k) {
			off++
		}
	}
	if off < 60 || off > 140 {
		t.Errorf("%d of 200 are no points, about half should be", off)
	}
}

func FuzzKeyFiles(f *testing.F) {
	s := newSigner(bytes.Repeat([]byte{7}, 32))
	f.Add(s.PrivateFile())
	f.Add(s.Public().File())
	f.Add([]byte("# x\n" + string(bytes.TrimSpace(s.Public().File())) + " through receipt:sha3-256:" + strings.Repeat("0", 64) + "\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := ParseSigner(text); err == nil && !bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(s.PrivateFile())) {
			t.Fatalf("two spellings of a private key: %q", text)
		}
		keys, err := ParseTrustedKeys(text)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		for _, k := range keys {
			if !bytes.Contains(text, bytes.TrimSpace(k.Key.File())) || !bytes.Contains(text, []byte(k.Through)) {
				t.Fatalf("%+v is not in %q", k, text)
			}
		}
	})
}
