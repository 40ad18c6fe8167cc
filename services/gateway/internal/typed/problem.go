package typed

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// The headers of an error, beside those that HTTP answers have.
const (
	headerCode      = "X-Error-Code"
	headerRetryable = "X-Error-Retryable"
	headerRetry     = "Retry-After"
)

// toWireRefusal makes the error that a caller gets: Connect's code for the
// table's status, "code: sentence" as its text, a Problem, and as metadata the
// headers so far, the code's string and what HTTP answers say about repeats.
func toWireRefusal(ref *refusal.Refusal, header http.Header) *connect.Error {
	out := connect.NewError(code(ref), errors.New(ref.Error()))
	p := &commonv1.Problem{Code: reason(ref), Title: ref.Message, Retry: commonv1.Retry_RETRY_NEVER}
	if ref.Retryable {
		p.Retry = commonv1.Retry_RETRY_TRANSIENT
	}
	meta := out.Meta()
	maps.Copy(meta, header)
	meta.Set(headerCode, string(ref.Code))
	meta.Set(headerRetryable, strconv.FormatBool(ref.Retryable))
	if secs, err := strconv.ParseInt(ref.RetryAfter, 10, 32); err == nil {
		wait := (time.Duration(secs) * time.Second).Nanoseconds()
		p.WaitNanos = &wait
	}
	if ref.RetryAfter != "" {
		meta.Set(headerRetry, ref.RetryAfter)
	}
	if ref.Limit != nil {
		ref.Limit.SetHeaders(meta)
	}
	if ref.Original != nil {
		ref.Original.SetHeaders(meta)
	}
	if detail, err := connect.NewErrorDetail(p); err == nil {
		out.AddDetail(detail)
	}
	return out
}

// code is Connect's code for a refusal's status.
func code(ref *refusal.Refusal) connect.Code {
	switch ref.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return connect.CodeInvalidArgument
	case http.StatusConflict:
		if ref.Retryable {
			return connect.CodeAborted
		}
		return connect.CodeAlreadyExists
	case http.StatusUnauthorized:
		return connect.CodeUnauthenticated
	case http.StatusForbidden:
		return connect.CodePermissionDenied
	case http.StatusNotFound:
		return connect.CodeNotFound
	case http.StatusRequestTimeout:
		return connect.CodeDeadlineExceeded
	case http.StatusPaymentRequired, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return connect.CodeResourceExhausted
	case http.StatusServiceUnavailable:
		return connect.CodeUnavailable
	case http.StatusNotImplemented:
		return connect.CodeUnimplemented
	case http.StatusBadGateway:
		if ref.Retryable {
			return connect.CodeUnavailable
		}
	}
	return connect.CodeInternal
}

// reason is the contract's value for a refusal's code.
func reason(ref *refusal.Refusal) commonv1.Reason {
	switch ref.Code {
	case refusal.Unauthorized:
		return commonv1.Reason_REASON_UNAUTHENTICATED
	case refusal.InvalidModel:
		return commonv1.Reason_REASON_MODEL_NOT_FOUND
	case refusal.PayloadTooLarge:
		return commonv1.Reason_REASON_TOO_LARGE
	case refusal.RequestTimeout:
		return commonv1.Reason_REASON_UNAVAILABLE
	case refusal.ShuttingDown:
		return commonv1.Reason_REASON_NOT_READY
	case refusal.RateLimited:
		if ref.Limit != nil && ref.Limit.Unit == "tokens" {
			return commonv1.Reason_REASON_TOKENS_PER_MINUTE
		}
		return commonv1.Reason_REASON_REQUESTS_PER_MINUTE
	case unsupported:
		return commonv1.Reason_REASON_UNSUPPORTED
	default:
	}
	// The others are spelled alike.
	if v, ok := commonv1.Reason_value["REASON_"+upper(string(ref.Code))]; ok {
		return commonv1.Reason(v)
	}
	return commonv1.Reason_REASON_INTERNAL
}

func upper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// unsupported is the code of a procedure that the contract has and this build
// does not.
const unsupported refusal.Code = "unsupported"

func notBuilt() *refusal.Refusal {
	return &refusal.Refusal{Code: unsupported, Status: http.StatusNotImplemented, Message: "this procedure is not built yet"}
}
