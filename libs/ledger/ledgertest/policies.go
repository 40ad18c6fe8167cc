package ledgertest

import (
	"bytes"
	"crypto/sha256"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

func policies() []guarantee {
	return []guarantee{
		{"a policy is stored under the hash of its bytes, once", policyStored},
		{"an unknown revision is not found", policyUnknown},
		{"altered bytes are never given out", policyAltered},
		{"a document above the bound is refused", policyBound},
	}
}

func policyBody() []byte { return []byte(`{"models":["llama"],"version":1}`) }

func policyStored(w *world) {
	got, err := w.Ledger.PutPolicy(w.Context(), w.config(), policyBody())
	w.must(err)
	same(w, "revision", got.Revision, sha256.Sum256(policyBody()))
	read, err := w.Ledger.GetPolicy(w.Context(), got.Revision)
	w.must(err)
	same(w, "body", string(read.Body), string(policyBody()))
	again, err := w.Ledger.PutPolicy(w.Context(), w.config(), policyBody())
	w.must(err)
	same(w, "revision", again.Revision, got.Revision)
}

func policyUnknown(w *world) {
	_, err := w.Ledger.GetPolicy(w.Context(), sha256.Sum256([]byte("no such policy")))
	w.wantKind(err, fault.NotFound, "an unknown policy")
}

func policyAltered(w *world) {
	got, err := w.Ledger.PutPolicy(w.Context(), w.config(), policyBody())
	w.must(err)
	w.must(w.Exec("UPDATE policies SET body = revision WHERE created_at > 0"))
	_, err = w.Ledger.GetPolicy(w.Context(), got.Revision)
	w.wantKind(err, fault.Internal, "altered bytes")
}

func policyBound(w *world) {
	body := append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), ledger.MaxPolicyBytes)...)
	body = append(body, `"}`...)
	w.unchanged("a policy above the bound", func() {
		_, err := w.Ledger.PutPolicy(w.Context(), w.config(), body)
		w.wantKind(err, fault.Invalid, "a policy above the bound")
	})
}
