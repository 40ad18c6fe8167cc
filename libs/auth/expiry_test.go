package auth_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// TestASessionEndsWithTheFirstOfItsEnds holds a session against an oracle that
// remembers nothing: after any history of tables, credentials and clocks going
// either way, the session must answer as if it verified from scratch.
func TestASessionEndsWithTheFirstOfItsEnds(t *testing.T) {
	t.Parallel()
	i, v := issuer(t), tokens(t)
	rapid.Check(t, func(t *rapid.T) {
		second := rapid.Int64Range(-90, 90)
		at := func(label string) time.Time { return t0.Add(time.Duration(second.Draw(t, label)) * time.Second) }
		end := func(label string) time.Time {
			if rapid.Bool().Draw(t, label+" endless") {
				return time.Time{}
			}
			return at(label)
		}
		type spoken struct {
			raw       string
			tenant    string    // "": a key
			from, end time.Time // without leeway
		}
		said := []spoken{{raw: "one"}, {raw: "nobody"}}
		for n := range 3 {
			from, until := at("nbf"), at("exp")
			tenant := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
			said = append(said, spoken{
				raw:    token("nbf", fmt.Sprint(from.Unix()), "exp", fmt.Sprint(until.Unix()), "tenant_id", `"`+tenant+`"`, "jti", fmt.Sprintf(`"%d"`, n)),
				tenant: tenant, from: from, end: until,
			})
		}
		r := auth.NewRegistry(i)
		var (
			s        auth.Session
			deadline time.Time
			ends     map[string]time.Time // of what the table holds: tenants, and "" for the key
			revision int64
		)
		want := func(c spoken, now time.Time) fault.Kind {
			end, held := ends[c.tenant]
			switch {
			case !now.Before(deadline):
				return fault.Unavailable
			case !held || c.raw == "nobody" || (!end.IsZero() && !now.Before(end)):
				return fault.Unauthenticated
			case c.tenant != "" && (now.Before(c.from.Add(-leeway)) || !now.Before(c.end.Add(leeway))):
				return fault.Unauthenticated
			}
			return 0
		}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"verify", "verify", "verify", "table", "extend", "forget"}).Draw(t, "step") {
			case "verify":
				c, now := rapid.SampledFrom(said).Draw(t, "credential"), at("now")
				who, err := s.VerifyBearer(r, v, c.raw, now)
				kind := want(c, now)
				if (err == nil) != (kind == 0) || (err != nil && fault.KindOf(err) != kind) {
					t.Fatalf("%d bytes at %v: %v, want kind %d", len(c.raw), now, err, kind)
				}
				if err == nil && (!now.Before(who.NotAfter) && !who.NotAfter.IsZero()) {
					t.Fatalf("an identity that ended at %v verified at %v", who.NotAfter, now)
				}
			case "table":
				ends, deadline, revision = map[string]time.Time{}, at("deadline"), revision+1
				var entries []auth.Entry
				if rapid.Bool().Draw(t, "key") {
					e := entry(i, "one")
					e.NotAfter = end("key end")
					ends[""] = e.NotAfter
					entries = append(entries, e)
				}
				for _, tenant := range []string{"a", "b"} {
					if rapid.Bool().Draw(t, tenant) {
						e := auth.Entry{Digest: auth.TokenDigest(tokenIssuer, tenant), Account: ident.Account(tenant), NotAfter: end(tenant + " end")}
						ends[tenant] = e.NotAfter
						entries = append(entries, e)
					}
				}
				if err := r.Replace(entries, revision, deadline); err != nil {
					t.Fatal(err)
				}
			case "extend":
				if until := at("deadline"); ends != nil && r.Extend(revision, until) == nil && deadline.Before(until) {
					deadline = until
				}
			case "forget":
				s.Forget()
			}
		}
	})
}

// TestOneSessionServesManyStreams lets streams of one connection present keys
// and tokens while tables change: nobody may get another's identity.
func TestOneSessionServesManyStreams(t *testing.T) {
	t.Parallel()
	r, v := tenants(t, "a", "b"), tokens(t)
	i := issuer(t)
	var s auth.Session
	raws := map[string]string{"a": token("jti", `"a"`), "b": token("tenant_id", `"b"`, "jti", `"b"`)}
	var streams, tables sync.WaitGroup
	done := make(chan struct{})
	for tenant, raw := range raws {
		for range 3 {
			streams.Go(func() {
				for range 2000 {
					who, err := s.VerifyBearer(r, v, strings.Clone(raw), t0)
					if err != nil || who.KeyName != tenant || who.Account != ident.Account(tenant) {
						t.Errorf("%s: %+v, %v", tenant, who, err)
						return
					}
				}
			})
		}
	}
	streams.Go(func() {
		for range 500 {
			s.Forget()
			if who, err := s.Verify(r, minted, t0); err != nil || who.KeyName != minted {
				t.Errorf("the key: %+v, %v", who, err)
				return
			}
		}
	})
	tables.Go(func() {
		entries := []auth.Entry{entry(i, minted)}
		for tenant := range raws {
			entries = append(entries, auth.Entry{Digest: auth.TokenDigest(tokenIssuer, tenant), Account: ident.Account(tenant)})
		}
		for revision := int64(2); ; revision++ {
			select {
			case <-done:
				return
			default:
			}
			if err := r.Replace(entries, revision, t0.Add(time.Hour)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	streams.Wait()
	close(done)
	tables.Wait()
}
