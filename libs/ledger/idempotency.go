package ledger

import "github.com/tollgate-platform/tollgate/libs/kit/ident"

// Bounds of idempotency claims.
const (
	// MaxFingerprints bounds how many digests of one request a claim carries:
	// one under the current key, the others under keys rotated out.
	MaxFingerprints = 8
	// MaxFormat bounds Idempotency.Format, in bytes.
	MaxFormat = 64
	// MaxSealedAnswer bounds a stored answer, in bytes.
	MaxSealedAnswer = 9 << 20
	// MaxBatchAnswers bounds the answers of one CloseBatch together, in bytes.
	MaxBatchAnswers = MaxSealedAnswer
)

// Idempotency is a caller's claim that a request is executed at most once under
// its key. The key's scope is the account and the format.
type Idempotency struct {
	KeyHash [32]byte // digest of the caller's key; the key itself is never stored
	Format  string   // endpoint format the key is scoped to, as "chat/complete": 1–MaxFormat of a-z 0-9 / - _ .
	// Fingerprints are digests of the request, 1–MaxFingerprints: the first is
	// stored with a new claim, and a stored claim is this request's if any of
	// them is its own.
	Fingerprints [][32]byte
}

// Replay answers a Reserve whose idempotency key belongs to a request that has
// ended and was billed: it is not executed again. It changed nothing.
type Replay struct {
	Request ident.ID // the request that first came with the key
	Bill    ClosedReservation
	// SealedAnswer is what its Close gave to keep, at most MaxSealedAnswer bytes;
	// empty when nothing is kept, or no more.
	SealedAnswer []byte
}

// InProgress answers a Reserve whose idempotency key belongs to a request that
// still runs. It changed nothing.
type InProgress struct {
	Request ident.ID // the request that first came with the key
}
