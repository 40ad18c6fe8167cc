package idempotency

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// secret is a key of 32 equal bytes, as a setting has it.
func secret(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

// keys are those of two settings; "" is an unset variable.
func keys(t testing.TB, fingerprints, answers string) *Keys {
	t.Helper()
	k, err := open(fingerprints, answers)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(fingerprints, answers string) (*Keys, error) {
	issuer, err := auth.NewIssuer(bytes.Repeat([]byte("i"), 32))
	if err != nil {
		return nil, err
	}
	return New(Options{ResponseKeysEnv: "ANSWERS", FingerprintKeysEnv: "PRINTS", Issuer: issuer, LookupEnv: func(name string) (string, bool) {
		v := map[string]string{"ANSWERS": answers, "PRINTS": fingerprints}[name]
		return v, v != ""
	}})
}

var (
	alice = ident.Account("alice")
	asked = ident.ID{1, 2, 3}
)

func sample() Answer {
	return Answer{Headers: []Header{{"X-Receipt-Id", "r1"}, {"X-Empty", ""}}, Body: []byte("{\"content\":\"hi\"}\n")}
}

func same(a, b Answer) bool { return slices.Equal(a.Headers, b.Headers) && bytes.Equal(a.Body, b.Body) }

// TestSealedAnswersOpen walks answers of every size back to themselves.
func TestSealedAnswersOpen(t *testing.T) {
	t.Parallel()
	k := keys(t, "", "k1:"+secret(1))
	rapid.Check(t, func(t *rapid.T) {
		a := Answer{Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body")}
		for range rapid.IntRange(0, maxHeaders).Draw(t, "headers") {
			a.Headers = append(a.Headers, Header{rapid.StringN(0, 20, maxHeader).Draw(t, "name"), rapid.StringN(0, 20, maxHeader).Draw(t, "value")})
		}
		sealed, err := k.Seal(alice, asked, a)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Open(alice, asked, sealed); err != nil || !same(got, a) {
			t.Fatalf("%+v, %v, want %+v", got, err, a)
		}
		again, err := k.Seal(alice, asked, a)
		if err != nil || bytes.Equal(again, sealed) {
			t.Fatal("two seals of one answer are equal: the nonce repeats")
		}
	})
}

// TestNothingElseOpens flips every bit of a sealed answer and moves it to
// another account, request and key: none of it opens.
func TestNothingElseOpens(t *testing.T) {
	t.Parallel()
	k := keys(t, "", "k1:"+secret(1)+",k2:"+secret(2))
	sealed, err := k.Seal(alice, asked, sample())
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		for bit := range 8 {
			b := bytes.Clone(sealed)
			b[i] ^= 1 << bit
			if a, err := k.Open(alice, asked, b); err == nil {
				t.Errorf("byte %d, bit %d: opened as %+v", i, bit, a)
			}
		}
	}
	for n := range sealed {
		if _, err := k.Open(alice, asked, sealed[:n]); err == nil {
			t.Errorf("the first %d bytes opened", n)
		}
	}
	if _, err := k.Open(alice, asked, append(bytes.Clone(sealed), 0)); !errors.Is(err, ErrForged) {
		t.Errorf("a longer one: %v", err)
	}
	if _, err := k.Open(ident.Account("bob"), asked, sealed); !errors.Is(err, ErrForged) {
		t.Errorf("another account: %v", err)
	}
	if _, err := k.Open(alice, ident.ID{1, 2, 4}, sealed); !errors.Is(err, ErrForged) {
		t.Errorf("another request: %v", err)
	}
	// The same secret under another id: the id is bound, too.
	if _, err := keys(t, "", "k2:"+secret(1)).Open(alice, asked, append([]byte{1, 2, 'k', '2'}, sealed[4:]...)); !errors.Is(err, ErrForged) {
		t.Errorf("another key id: %v", err)
	}
	if _, err := keys(t, "", "k1:"+secret(9)).Open(alice, asked, sealed); !errors.Is(err, ErrForged) {
		t.Errorf("another secret: %v", err)
	}
}

// TestAnswerKeysRotate guards rotation: the first seals, all open, what was
// removed opens nothing.
func TestAnswerKeysRotate(t *testing.T) {
	t.Parallel()
	before := keys(t, "", "old:"+secret(1))
	sealed, err := before.Seal(alice, asked, sample())
	if err != nil {
		t.Fatal(err)
	}
	during := keys(t, "", "new:"+secret(2)+", old:"+secret(1))
	if a, err := during.Open(alice, asked, sealed); err != nil || !same(a, sample()) {
		t.Errorf("after the rotation: %+v, %v", a, err)
	}
	fresh, err := during.Seal(alice, asked, sample())
	if err != nil || !bytes.HasPrefix(fresh, []byte("\x01\x03new")) {
		t.Errorf("sealed by %q, %v", fresh[:5], err)
	}
	after := keys(t, "", "new:"+secret(2))
	if _, err := after.Open(alice, asked, sealed); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("after the removal: %v", err)
	}
	if a, err := after.Open(alice, asked, fresh); err != nil || !same(a, sample()) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := keys(t, "", "").Open(alice, asked, fresh); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without keys: %v", err)
	}
	if _, err := keys(t, "", "").Seal(alice, asked, sample()); !errors.Is(err, ErrNoKeys) {
		t.Errorf("without keys: %v", err)
	}
}

// TestTheBytesAreThoseOfTheADR opens what the standard library sealed by the
// description of ADR 8, so that stored answers stay readable.
func TestTheBytesAreThoseOfTheADR(t *testing.T) {
	t.Parallel()
	block, err := aes.NewCipher(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	nonce := []byte("nonce-of-12b")
	plain := []byte("\x01\x01\x00\x01H\x00\x02vv{}")
	bound := append(append(append([]byte("tollgate sealed answer v1\n"), alice[:]...), asked[:]...), "k7"...)
	sealed := gcm.Seal(append([]byte("\x01\x02k7"), nonce...), nonce, plain, bound)
	const want = "01026b376e6f6e63652d6f662d313262"
	if got := hex.EncodeToString(sealed[:16]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a, err := keys(t, "", "k7:"+secret(7)).Open(alice, asked, sealed)
	if err != nil || !same(a, Answer{Headers: []Header{{"H", "vv"}}, Body: []byte("{}")}) {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestWhatIsTooLargeIsNotKept guards the bounds of what is kept: to the byte.
func TestWhatIsTooLargeIsNotKept(t *testing.T) {
	t.Parallel()
	k := keys(t, "", "k1:"+secret(1))
	room := ledger.MaxSealedAnswer - (2 + 2 + gcmOverhead) - 2
	sealed, err := k.Seal(alice, asked, Answer{Body: make([]byte, room)})
	if err != nil || len(sealed) != ledger.MaxSealedAnswer {
		t.Errorf("%d bytes, %v", len(sealed), err)
	}
	if a, err := k.Open(alice, asked, sealed); err != nil || len(a.Body) != room {
		t.Errorf("%v", err)
	}
	if _, err := k.Seal(alice, asked, Answer{Body: make([]byte, room+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte more: %v", err)
	}
	if _, err := k.Seal(alice, asked, Answer{Headers: []Header{{"n", string(make([]byte, maxHeader+1))}}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long header: %v", err)
	}
	if _, err := k.Seal(alice, asked, Answer{Headers: make([]Header, maxHeaders+1)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("many headers: %v", err)
	}
}

// FuzzOpen guards that no bytes panic, and that none opens but a real seal.
func FuzzOpen(f *testing.F) {
	k := keys(f, "", "k1:"+secret(1))
	sealed, err := k.Seal(alice, asked, sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := k.Open(alice, asked, b); err == nil && !bytes.Equal(b, sealed) {
			t.Fatalf("%x opened as %+v", b, a)
		}
	})
}

// FuzzDecode guards the parser behind the seal: what it takes, it writes alike.
func FuzzDecode(f *testing.F) {
	f.Add(sample().encode())
	f.Add([]byte{1, 1, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(b)
		if err != nil {
			return
		}
		if !a.encodable() || a.size() != len(b) || !bytes.Equal(a.encode(), b) {
			t.Fatalf("%x is written as %x", b, a.encode())
		}
	})
}
