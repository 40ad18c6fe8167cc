// Package wire is what every Connect handler shares: how an error becomes one
// that may be sent, how a message is validated, and how large it may be.
package wire

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/validate"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// MaxMessage bounds every message read by a handler, in bytes.
const MaxMessage = 4 << 20

// MaxAnswerMessage bounds instead those that carry sealed answers, which the
// ledger bounds to 9 MiB a message.
const MaxAnswerMessage = 12 << 20

// HandlerOptions are the options of every handler: the outer interceptors, as
// tracing, which see what is sent; then errors, so that nothing leaves
// unclassified; then validation by the contract's rules.
func HandlerOptions(log *slog.Logger, outer ...connect.Interceptor) []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(MaxMessage),
		connect.WithInterceptors(append(slices.Clone(outer), &errorsInterceptor{log: log}, validate.NewInterceptor())...),
		connect.WithRecover(func(ctx context.Context, spec connect.Spec, _ http.Header, p any) error {
			log.ErrorContext(ctx, "a handler panicked", slog.String("procedure", spec.Procedure), slog.Any("panic", p))
			return fault.New(fault.Internal, "INTERNAL", "internal error")
		}),
	}
}

// errorsInterceptor turns every error into one that may be sent: it is the only
// place that knows both a fault's kind and Connect's codes.
type errorsInterceptor struct{ log *slog.Logger }

func (e *errorsInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err != nil {
			return nil, Send(ctx, e.log, req.Spec().Procedure, err)
		}
		return res, nil
	}
}

func (e *errorsInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (e *errorsInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := next(ctx, conn); err != nil {
			return Send(ctx, e.log, conn.Spec().Procedure, err)
		}
		return nil
	}
}

// Send makes the error that leaves a service: a Connect code, a public
// sentence and a Problem. A cause is logged under the problem's error id and
// never sent. Connect's own errors (validation, size, protocol) keep their code
// and text, which hold nothing of ours; everything else unclassified is
// "internal error".
func Send(ctx context.Context, log *slog.Logger, procedure string, err error) error {
	f, ours := errors.AsType[*fault.Error](err)
	if !ours {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return err // Connect gives these their own codes
		}
		if sent, ok := errors.AsType[*connect.Error](err); ok && connect.CodeOf(err) != connect.CodeUnknown {
			return withProblem(sent, Problem(fault.New(kindOf(sent.Code()), "INVALID_ARGUMENT", sent.Message()), ""))
		}
		f = fault.Because(fault.Internal, "INTERNAL", "internal error", err)
	}
	var id string
	if f.Cause != nil || f.Kind == fault.Internal {
		id = ident.New().String()
		log.LogAttrs(ctx, severity(f.Kind), "a request failed", slog.String("procedure", procedure),
			slog.String("error_id", id), slog.String("reason", f.Reason), slog.Any("error", err))
	}
	return withProblem(connect.NewError(Code(f.Kind), errors.New(f.Public)), Problem(f, id))
}

func withProblem(sent *connect.Error, p *commonv1.Problem) error {
	if detail, err := connect.NewErrorDetail(p); err == nil {
		sent.AddDetail(detail)
	}
	return sent
}

// kindOf is the kind whose code this is; Invalid for a code that no kind has.
func kindOf(c connect.Code) fault.Kind {
	for k := fault.Internal; k <= fault.Unsupported; k++ {
		if Code(k) == c {
			return k
		}
	}
	return fault.Invalid
}

// Reason is the contract's value for a fault's reason; a reason that the
// contract doesn't list is told by its kind.
func Reason(f *fault.Error) commonv1.Reason {
	if v, ok := commonv1.Reason_value["REASON_"+f.Reason]; ok {
		return commonv1.Reason(v)
	}
	switch f.Kind {
	case fault.Invalid:
		return commonv1.Reason_REASON_INVALID_ARGUMENT
	case fault.NotFound:
		return commonv1.Reason_REASON_NOT_FOUND
	case fault.Unavailable, fault.Exhausted:
		return commonv1.Reason_REASON_UNAVAILABLE
	case fault.Unauthenticated:
		return commonv1.Reason_REASON_UNAUTHENTICATED
	case fault.Forbidden:
		return commonv1.Reason_REASON_FORBIDDEN
	case fault.Unsupported:
		return commonv1.Reason_REASON_UNSUPPORTED
	case fault.Internal, fault.Conflict, fault.Stale:
	}
	return commonv1.Reason_REASON_INTERNAL
}

// Code is Connect's code for a kind.
func Code(k fault.Kind) connect.Code {
	switch k {
	case fault.Invalid:
		return connect.CodeInvalidArgument
	case fault.NotFound:
		return connect.CodeNotFound
	case fault.Conflict:
		return connect.CodeAlreadyExists
	case fault.Stale:
		return connect.CodeAborted
	case fault.Exhausted:
		return connect.CodeResourceExhausted
	case fault.Unavailable:
		return connect.CodeUnavailable
	case fault.Unauthenticated:
		return connect.CodeUnauthenticated
	case fault.Forbidden:
		return connect.CodePermissionDenied
	case fault.Unsupported:
		return connect.CodeUnimplemented
	case fault.Internal:
	}
	return connect.CodeInternal
}

func retry(k fault.Kind) commonv1.Retry {
	switch k {
	case fault.Unavailable, fault.Exhausted:
		return commonv1.Retry_RETRY_TRANSIENT
	case fault.Stale:
		return commonv1.Retry_RETRY_AFTER_READ
	case fault.Internal, fault.Invalid, fault.NotFound, fault.Conflict, fault.Unauthenticated, fault.Forbidden, fault.Unsupported:
	}
	return commonv1.Retry_RETRY_NEVER
}

func severity(k fault.Kind) slog.Level {
	if k == fault.Internal {
		return slog.LevelError
	}
	return slog.LevelWarn
}
