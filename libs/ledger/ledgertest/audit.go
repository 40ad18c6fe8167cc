package ledgertest

import (
	"fmt"
	"math"

	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func audits() []guarantee {
	return []guarantee{
		{"every mutation writes one audit row that says who and why", auditWritten},
		{"a refused mutation and a no-op write none", auditRefused},
		{"no audit row holds a digest or a principal", auditSecrets},
	}
}

// count fails unless so many rows of a table match. The statement is one that a
// constraint refuses exactly when the number is another one.
func (w *world) count(want int, from string) {
	w.Helper()
	err := w.Exec(fmt.Sprintf("INSERT INTO revisions (one, value) SELECT 2, 0 WHERE (SELECT count(*) FROM %s) <> %d", from, want))
	if err != nil {
		w.Fatalf("there aren't %d rows of %s:\n%s", want, from, w.Dump())
	}
}

func auditWritten(w *world) {
	ctx, by := w.Context(), w.operator()
	acme := w.funded("acme", 10)
	_, err := w.Ledger.Deposit(ctx, by, acme.id, 5, "invoice 7")
	w.must(err)
	_, err = w.Ledger.Withdraw(ctx, by, acme.id, 5, "refund 8")
	w.must(err)
	w.setBudget(acme, ledger.Daily, 5)
	_, err = w.Ledger.SetLimits(ctx, by, acme.id, ledger.Limits{MaxConcurrent: 3})
	w.must(err)
	w.publish(acme, "acme")
	_, err = w.Ledger.SetStatus(ctx, by, acme.id, ledger.StatusSuspended)
	w.must(err)
	_, err = w.Ledger.RevokeKey(ctx, by, acme.key)
	w.must(err)
	_, err = w.Ledger.PutPolicy(ctx, w.config(), policyBody())
	w.must(err)
	for _, action := range []string{
		"account.create", "account.deposit", "account.withdraw", "account.set_budget", "account.set_limits", "account.set_status",
		"key.put", "key.revoke", "snapshot.publish", "policy.put",
	} {
		w.count(1, "audit WHERE action = '"+action+"'")
	}
	w.count(10, "audit")
	w.count(1, "audit WHERE action = 'account.deposit' AND reason = 'invoice 7' AND actor = 'alice' AND authority = 'operator' AND state_before <> state_after")
	w.count(1, "audit WHERE action = 'account.withdraw' AND reason = 'refund 8'")
	w.count(3, "audit WHERE authority = 'config'") // the key, the snapshot and the policy
}

func auditRefused(w *world) {
	ctx, by := w.Context(), w.operator()
	acme := w.funded("acme", 10)
	w.count(2, "audit")
	for _, call := range []func() error{
		func() error { _, err := w.Ledger.Deposit(ctx, by, acme.id, math.MaxInt64, "x"); return err },
		func() error { _, err := w.Ledger.Withdraw(ctx, by, acme.id, 11, "x"); return err },
		func() error {
			_, err := w.Ledger.CreateAccount(ctx, by, ledger.NewAccount{Slug: "acme", Origin: ledger.ByOperator})
			return err
		},
	} {
		if call() == nil {
			w.Fatal("granted what must be refused")
		}
	}
	_, err := w.Ledger.SetStatus(ctx, by, acme.id, ledger.StatusActive)
	w.must(err)
	w.putKey(acme.id, "acme", "k1")
	w.count(2, "audit")
}

func auditSecrets(w *world) {
	acme := w.funded("acme", 10)
	w.publish(acme, "acme")
	_, err := w.Ledger.RevokeKey(w.Context(), w.operator(), acme.key)
	w.must(err)
	k := newKey(acme.id, "acme", "k1")
	for what, secret := range map[string]string{"principal": fmt.Sprintf("%x", k.Principal), "digest": fmt.Sprintf("%x", k.Digest[16:])} {
		w.Log(what)
		w.count(0, "audit WHERE state_before LIKE '%"+secret+"%' OR state_after LIKE '%"+secret+"%' OR subject LIKE '%"+secret+"%'")
	}
	w.count(1, "audit WHERE action = 'key.revoke' AND state_after LIKE '%revoked_at%'")
}
