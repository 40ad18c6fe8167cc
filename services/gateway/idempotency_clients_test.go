package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	sdk "github.com/openai/openai-go/v3"
	sdkoption "github.com/openai/openai-go/v3/option"
	"google.golang.org/protobuf/proto"

	"github.com/tollgate-platform/tollgate/libs/testkit/mockprovider"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// TestTypedReplays guards the typed API in every dialect: the same promise, with
// the key in the message or in a header, and a replay read by another codec.
func TestTypedReplays(t *testing.T) {
	t.Parallel()
	forEachDialect(t, func(t *testing.T, d dialect) {
		w := setup(t, withKeys())
		header, plain := w.typed(d, "X-Api-Key", proofKey, "Idempotency-Key", "k"), w.typed(d, "X-Api-Key", proofKey)
		first, err := header.Complete(w.ctx(), askedWhole("tools", "a b"))
		w.must(err)
		w.settled("proof")
		withField := askedWhole("tools", "a b")
		withField.IdempotencyKey = "k"
		again, err := plain.Complete(w.ctx(), withField)
		w.must(err)
		if !again.GetCompletion().GetReplayed() || first.GetCompletion().GetReplayed() {
			t.Error("replayed is not told")
		}
		again.GetCompletion().Replayed = false
		if !proto.Equal(again, first) || first.GetCompletion().GetReceiptSalt() == "" {
			t.Errorf("%v, want %v", again, first)
		}
		for _, other := range dialects() {
			res, err := w.typed(other, "X-Api-Key", proofKey).Complete(w.ctx(), withField)
			w.must(err)
			if !res.GetCompletion().GetReplayed() || res.GetCompletion().GetRequestId() != first.GetCompletion().GetRequestId() {
				t.Errorf("%s: %v", other.name, res)
			}
		}
		if w.mock.Count() != 1 || len(w.receipts.all()) != 2 {
			t.Errorf("%d calls, %d receipts", w.mock.Count(), len(w.receipts.all()))
		}
		withField.Messages[0] = say("user", "c")
		_, err = plain.Complete(w.ctx(), withField)
		if sent, p := problem(t, err); sent.Code() != connect.CodeInvalidArgument || p.GetCode() != commonv1.Reason_REASON_IDEMPOTENCY_KEY_REUSED {
			t.Errorf("%v %v", sent, p)
		}
		stream := func() error {
			s, err := header.Chat(w.ctx(), asked("echo", "a b"))
			if err != nil {
				return err
			}
			defer s.Close()
			for s.Receive() {
			}
			return s.Err()
		}
		w.must(stream())
		bills := w.settled("proof")
		sent, p := problem(t, stream())
		if sent.Code() != connect.CodeAlreadyExists || p.GetCode() != commonv1.Reason_REASON_DUPLICATE_REQUEST || p.GetRetry() != commonv1.Retry_RETRY_NEVER ||
			sent.Meta().Get("X-Original-Request-Id") != bills[1].Request.String() || sent.Meta().Get("X-Original-Cost-Nano-Usd") != fmt.Sprint(bills[1].Units) {
			t.Errorf("%v %v %v", sent, p, sent.Meta())
		}
		if w.mock.Count() != 2 {
			t.Errorf("%d calls", w.mock.Count())
		}
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		release := make(chan struct{})
		w := setup(t, withKeys(), withHook(func(*mockprovider.Request) (mockprovider.Script, bool) {
			<-release
			return mockprovider.Script{}, false
		}))
		client := w.typed(dialects()[0], "X-Api-Key", acmeKey, "Idempotency-Key", "k")
		done := make(chan error, 1)
		go func() {
			_, err := client.Complete(w.ctx(), askedWhole("echo", "a"))
			done <- err
		}()
		w.eventually("the provider is asked", func() bool { return w.mock.Count() == 1 })
		_, err := client.Complete(w.ctx(), askedWhole("echo", "a"))
		sent, p := problem(t, err)
		if sent.Code() != connect.CodeAborted || p.GetCode() != commonv1.Reason_REASON_REQUEST_IN_PROGRESS || p.GetRetry() != commonv1.Retry_RETRY_TRANSIENT || p.GetWaitNanos() != time.Second.Nanoseconds() {
			t.Errorf("%v %v", sent, p)
		}
		close(release)
		w.must(<-done)
	})
}

// TestSDKRetriesAreExecutedOnce drives the official client, whose automatic
// retries repeat the headers it was given: an answer that is lost on its way
// comes again, and a stream that was lost is refused without more retries.
func TestSDKRetriesAreExecutedOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, withKeys())
	lossy := &lossy{to: w.http}
	client := w.sdk(acmeKey)
	options := []sdkoption.RequestOption{sdkoption.WithMaxRetries(2), sdkoption.WithHTTPClient(lossy)}
	got, err := client.Chat.Completions.New(w.ctx(), chat("echo", "a b"), append(options, sdkoption.WithHeader("Idempotency-Key", "k1"))...)
	w.must(err)
	if got.Choices[0].Message.Content != "a b" || lossy.calls.Load() != 2 || w.mock.Count() != 1 {
		t.Errorf("%d attempts, %d calls: %s", lossy.calls.Load(), w.mock.Count(), got.RawJSON())
	}
	if bills := w.settled("acme"); len(bills) != 1 {
		t.Errorf("%d bills", len(bills))
	}
	lossy.calls.Store(0)
	stream := client.Chat.Completions.NewStreaming(w.ctx(), chat("echo", "a b"), append(options, sdkoption.WithHeader("Idempotency-Key", "k2"))...)
	defer stream.Close()
	for stream.Next() {
		t.Errorf("a chunk: %s", stream.Current().RawJSON())
	}
	if e, ok := errors.AsType[*sdk.Error](stream.Err()); !ok || e.Code != "duplicate_request" || lossy.calls.Load() != 2 || w.mock.Count() != 2 {
		t.Errorf("%d attempts, %d calls: %v", lossy.calls.Load(), w.mock.Count(), stream.Err())
	}
	w.settled("acme")
}

// lossy loses the first answer, after it was given in full.
type lossy struct {
	to    *http.Client
	calls atomic.Int64
}

func (l *lossy) Do(r *http.Request) (*http.Response, error) {
	res, err := l.to.Do(r)
	if err != nil || l.calls.Add(1) > 1 {
		return res, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return nil, errors.New("connection reset")
}
