package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/kit/ident"
)

// repeat: a request that is sent twice under one Idempotency-Key runs once.
func (w *walk) repeat(ctx context.Context) (string, error) {
	keyed := w.acme
	keyed.idempotency = "walk-" + ident.New().String()
	first, err := keyed.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/echo", prompt))
	if err != nil {
		return "", err
	}
	var doc struct {
		Cost int64 `json:"cost_nano_usd"`
	}
	if err := json.Unmarshal(first.body, &doc); err != nil || first.status != http.StatusOK {
		return "", errors.New(first.String())
	}
	w.expected += doc.Cost
	again, err := keyed.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/echo", prompt))
	if err != nil {
		return "", err
	}
	said := "the same bytes and receipt again"
	switch {
	case again.status == http.StatusOK && again.header.Get("idempotent-replayed") == "true" && bytes.Equal(again.body, first.body) &&
		again.header.Get("x-receipt-salt") == first.header.Get("x-receipt-salt"):
	case w.server == nil && again.code() == "duplicate_request" && again.header.Get("x-original-request-id") == first.header.Get("x-request-id"):
		said = "409 with its bill, as that gateway keeps no answers"
	default:
		return "", fmt.Errorf("the repeat: %s", again)
	}
	other, err := keyed.call(ctx, http.MethodPost, "/v1/chat/complete", chat("mock/echo", "another "+prompt))
	if err != nil || other.status != http.StatusUnprocessableEntity || other.code() != "idempotency_key_reused" {
		return "", fmt.Errorf("another request under the same key: %s, %w", other, err)
	}
	return said + "; another request under the key: 422", nil
}
