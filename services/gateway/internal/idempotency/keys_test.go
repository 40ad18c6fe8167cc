package idempotency

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func ask() Request {
	return Request{Account: alice, Key: "order-1", Format: "chat/complete", Framing: "normalized", Body: []byte(`{"model":"m"}`)}
}

// matches says whether a claim stored by one gateway is another's request.
func matches(stored, now *ledger.Idempotency) bool {
	return slices.Contains(now.Fingerprints, stored.Fingerprints[0])
}

// TestFingerprintKeysRotate guards that a retry after a rotation, or after the
// first key was configured, finds its claim and matches it, and that a key that
// was removed matches no more.
func TestFingerprintKeysRotate(t *testing.T) {
	t.Parallel()
	none, one := keys(t, "", "").Claim(ask()), keys(t, "a:"+secret(1), "").Claim(ask())
	two := keys(t, "b:"+secret(2)+",a:"+secret(1), "").Claim(ask())
	moved := keys(t, "b:"+secret(2), "").Claim(ask())
	for name, c := range map[string]*ledger.Idempotency{"one": one, "two": two, "moved": moved} {
		if c.KeyHash != none.KeyHash || c.Format != "chat/complete" {
			t.Errorf("%s: the key's digest depends on fingerprint keys", name)
		}
		if !matches(none, c) {
			t.Errorf("%s: a claim from before there were keys does not match", name)
		}
	}
	if !matches(one, two) || !matches(two, moved) || matches(one, moved) || matches(two, one) {
		t.Error("rotation: a stored claim matches exactly while its key is configured")
	}
	if len(none.Fingerprints) != 1 || len(one.Fingerprints) != 2 || len(two.Fingerprints) != 3 {
		t.Errorf("%d, %d, %d candidates", len(none.Fingerprints), len(one.Fingerprints), len(two.Fingerprints))
	}
	if one.Fingerprints[0] == none.Fingerprints[0] {
		t.Error("with a key, the stored fingerprint is not keyed")
	}
}

// TestClaimsAreTheDeclaredConstruction recomputes a claim by ADR 8.
func TestClaimsAreTheDeclaredConstruction(t *testing.T) {
	t.Parallel()
	k := keys(t, "a:"+secret(1), "")
	c := k.Claim(ask())
	sum := func(key []byte, parts ...[]byte) (out [32]byte) {
		m := hmac.New(sha256.New, key)
		for _, p := range parts {
			m.Write(p)
		}
		return [32]byte(m.Sum(nil))
	}
	purpose := sha256.Sum256([]byte("idempotency keys"))
	derived := sum(bytes.Repeat([]byte("i"), 32), purpose[:], []byte("tollgate derived key v1"))
	if want := sum(derived[:], alice[:], []byte("order-1")); c.KeyHash != want {
		t.Errorf("key hash %x, want %x", c.KeyHash, want)
	}
	text := "tollgate idempotent request v1\n"
	for _, part := range []string{string(alice[:]), "chat/complete", "normalized", `{"model":"m"}`} {
		text += "\x00\x00\x00\x00\x00\x00\x00" + string(rune(len(part))) + part
	}
	plain := sha256.Sum256([]byte(text))
	if c.Fingerprints[1] != plain || c.Fingerprints[0] != sum(bytes.Repeat([]byte{1}, 32), plain[:]) {
		t.Errorf("fingerprints %x", c.Fingerprints)
	}
}

// TestNoTwoRequestsShareAFingerprint guards the encoding: moving a byte from one
// part to the next is another request, and so is any other change.
func TestNoTwoRequestsShareAFingerprint(t *testing.T) {
	t.Parallel()
	k := keys(t, "", "")
	part := rapid.StringMatching(`[ab/]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Request {
			return Request{Account: alice, Key: "k", Format: part.Draw(t, name), Framing: part.Draw(t, name), Body: []byte(part.Draw(t, name))}
		}
		a, b := draw("a"), draw("b")
		equal := a.Format == b.Format && a.Framing == b.Framing && bytes.Equal(a.Body, b.Body)
		if (k.Claim(a).Fingerprints[0] == k.Claim(b).Fingerprints[0]) != equal {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
	other := ask()
	other.Account = ident.Account("bob")
	if c, d := k.Claim(ask()), k.Claim(other); c.KeyHash == d.KeyHash || c.Fingerprints[0] == d.Fingerprints[0] {
		t.Error("two accounts share a digest")
	}
	other = ask()
	other.Key = "order-2"
	if c, d := k.Claim(ask()), k.Claim(other); c.KeyHash == d.KeyHash || c.Fingerprints[0] != d.Fingerprints[0] {
		t.Error("the key is in its own digest and nowhere else")
	}
}

func TestCallersKeys(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{
		"": false, "a": true, "!": true, "~": true, " ": false, "a b": false, "a\t": false, "\x7f": false, "é": false,
		strings.Repeat("k", 255): true, strings.Repeat("k", 256): false,
	} {
		if ValidKey(key) != ok {
			t.Errorf("%q: %v", key, !ok)
		}
	}
}

// TestMalformedSettingsAreRefused guards the start: each fault names its
// variable, entry and rule, and nothing of the value.
func TestMalformedSettingsAreRefused(t *testing.T) {
	t.Parallel()
	good := secret(1)
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("k%d:%s", i, secret(byte(i+1))))
	}
	for _, tt := range []struct{ name, value, rule string }{
		{"no colon", good, "entry 1: must be a key id, a colon"},
		{"no id", ":" + good, "entry 1: the key id must be 1 to 64"},
		{"id", "k 1:" + good, "entry 1: the key id must be 1 to 64"},
		{"long id", strings.Repeat("k", 65) + ":" + good, "entry 1: the key id must be 1 to 64"},
		{"not base64", "k1:SECRET*SECRET", "entry 1: the key must be standard base64"},
		{"no padding", "k1:" + strings.TrimRight(good, "="), "entry 1: the key must be standard base64"},
		{"url base64", "k1:" + strings.Repeat("-_", 22), "entry 1: the key must be standard base64"},
		{"line inside", "k1:" + good[:10] + "\n" + good[10:], "entry 1: the key must be standard base64"},
		{"trailing bits", "k1:" + good[:42] + "F=", "entry 1: the key must be standard base64"},
		{"short", "k1:QUJDREVG", "entry 1: the key must hold"},
		{"second", "k1:" + good + ",oops", "entry 2: must be a key id, a colon"},
		{"end comma", "k1:" + good + ",", "entry 2: must be a key id, a colon"},
		{"id twice", "k1:" + good + ",k1:" + secret(2), "entry 2: repeats the key id"},
		{"key twice", "k1:" + good + ",k2:" + good, "entry 2: repeats the key of"},
		{"many", strings.Join(many, ","), "holds at most"},
	} {
		for _, variable := range []string{"ANSWERS", "PRINTS"} {
			prints, answers := tt.value, ""
			if variable == "ANSWERS" {
				prints, answers = "", tt.value
			}
			_, err := open(prints, answers)
			if err == nil || fault.KindOf(err) != fault.Invalid || fault.ReasonOf(err) != ReasonKeys ||
				!strings.Contains(err.Error(), "the environment variable "+variable+": ") || !strings.Contains(err.Error(), tt.rule) {
				t.Errorf("%s in %s: %v", tt.name, variable, err)
			}
			if err != nil && (strings.Contains(err.Error(), good[:10]) || strings.Contains(err.Error(), "SECRET")) {
				t.Errorf("%s: the error tells the value: %v", tt.name, err)
			}
		}
	}
	if _, err := open("oops", "oops"); err == nil || !strings.Contains(err.Error(), "PRINTS") || !strings.Contains(err.Error(), "ANSWERS") {
		t.Errorf("both at once: %v", err)
	}
	long := "k1:" + strings.Repeat("QUJD", 20) // 60 bytes: a fingerprint's, not an AES-256 key
	if _, err := open(long, ""); err != nil {
		t.Errorf("a long fingerprint key: %v", err)
	}
	if _, err := open("", long); err == nil || !strings.Contains(err.Error(), "exactly 32 bytes") {
		t.Errorf("a long answer key: %v", err)
	}
	if _, err := open(" k1:"+good+" ,\tk2:"+secret(2)+"\n", ""); err != nil {
		t.Errorf("spaces around entries: %v", err)
	}
}

// TestMintedSettingsAreValid guards `tollgate secrets`.
func TestMintedSettingsAreValid(t *testing.T) {
	t.Parallel()
	a, b := Mint(), Mint()
	if k := keys(t, a, b+","+a); !k.Keyed() || !k.Seals() || a == b {
		t.Errorf("%v", k)
	}
	if err := errors.Join(Check(a), Check(a+","+b+"\n")); err != nil {
		t.Error(err)
	}
	if err := Check("k1:" + strings.Repeat("QUJD", 20)); err == nil || !strings.Contains(err.Error(), "the keys: entry 1: ") {
		t.Errorf("%v", err)
	}
}

// TestNothingPrintsASecret guards logs.
func TestNothingPrintsASecret(t *testing.T) {
	t.Parallel()
	k := keys(t, "prints:"+secret('Q'), "answers:"+secret('Q'))
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb, k)
		fmt.Fprintf(&out, verb, errors.Join(fmt.Errorf("%v", k)))
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", slog.Any("keys", k))
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", slog.Any("keys", k))
	b, err := json.Marshal(k) //nolint:staticcheck // that it shows nothing is the point
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	for _, s := range []string{"QQQ", "515151", "prints", "answers", secret('Q')[:8]} {
		if strings.Contains(out.String(), s) {
			t.Errorf("%q is shown: %s", s, &out)
		}
	}
	if !strings.Contains(out.String(), "[redacted]") {
		t.Errorf("%s", &out)
	}
}
