package gateway

import (
	"context"
	"log/slog"

	"github.com/tollgate-platform/tollgate/services/gateway/internal/idempotency"
)

// MintKeys makes a value for the variables that ledger.response_keys_env and
// ledger.fingerprint_keys_env name: one new random key under a new id, as
// kid:base64. To rotate, put a new one and a comma before what is there.
func MintKeys() string { return idempotency.Mint() }

// CheckKeys says what is wrong with such a value, for answers and for
// fingerprints alike; nil is nothing. The error tells nothing of the value.
func CheckKeys(value string) error { return idempotency.Check(value) }

// warnOfMissingKeys says once what idempotency does without its keys.
func (c *Component) warnOfMissingKeys(ctx context.Context) {
	if !c.keys.Keyed() {
		c.deps.Log.LogAttrs(ctx, slog.LevelWarn, "request fingerprints are not keyed: who reads the ledger can confirm a guess at a prompt that came with an Idempotency-Key",
			slog.String("key", "ledger.fingerprint_keys_env"), slog.String("variable", c.cfg.Ledger.FingerprintKeysEnv))
	}
	if !c.keys.Seals() {
		c.deps.Log.LogAttrs(ctx, slog.LevelWarn, "answers are not kept: a repeated completion is refused with duplicate_request instead of answered again",
			slog.String("key", "ledger.response_keys_env"), slog.String("variable", c.cfg.Ledger.ResponseKeysEnv))
	}
}
