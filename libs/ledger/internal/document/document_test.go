package document

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func doc() ledger.SnapshotDoc {
	return ledger.SnapshotDoc{
		Account: ident.Account("acme"), Slug: "acme", Key: ident.Key("acme", "main"), KeyName: "main",
		Status: ledger.StatusActive, Class: ledger.Assured, Permissions: 1 << 63, PolicyRevision: [32]byte{1, 2},
		ValidUntil: time.Date(2027, 1, 1, 0, 0, 0, 123, time.UTC),
		Limits:     ledger.SnapshotLimits{MaxItemsPerRequest: 5, MaxConcurrent: 6, RequestsPerMinute: 7, TokensPerMinute: 8},
	}
}

// TestSnapshotsSurviveStorage: every field, the largest numbers too.
func TestSnapshotsSurviveStorage(t *testing.T) {
	t.Parallel()
	for _, want := range []ledger.SnapshotDoc{doc(), {Status: ledger.StatusClosed, Class: ledger.BestEffort}} {
		b, err := EncodeSnapshot(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeSnapshot(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v (%v)\nwant %+v", b, got, err, want)
		}
	}
}

// TestUnknownContentIsRefused: a document this build doesn't understand isn't half read.
func TestUnknownContentIsRefused(t *testing.T) {
	t.Parallel()
	b, err := EncodeSnapshot(doc())
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	for _, bad := range []string{
		"", "{}", "null", good[:len(good)-1], good + "{}", strings.Replace(good, `"slug"`, `"slag"`, 1),
		strings.Replace(good, `"active"`, `"frozen"`, 1), strings.Replace(good, `"assured"`, `"vip"`, 1),
		strings.Replace(good, `"policy_revision":"01`, `"policy_revision":"0`, 1),
	} {
		if got, err := DecodeSnapshot([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	b, err := EncodeSnapshot(doc())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"account":"00"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeSnapshot(b)
		if err != nil {
			return
		}
		again, err := EncodeSnapshot(d)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeSnapshot(again); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("%q reads %+v, then %+v (%v)", b, d, got, err)
		}
	})
}
