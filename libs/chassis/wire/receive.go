package wire

import (
	"errors"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	commonv1 "github.com/tollgate-platform/tollgate/proto/gen/tollgate/common/v1"
)

// Problem tells a fault on the wire, also where it stands in an answer. The
// fault's cause stays here: log it under errorID; empty when there is none.
func Problem(f *fault.Error, errorID string) *commonv1.Problem {
	return &commonv1.Problem{
		Code: Reason(f), Title: f.Public, Retry: retry(f.Kind), ErrorId: errorID,
		Reason: f.Reason, Kind: commonv1.ProblemKind(f.Kind) + 1, // the enum follows fault's order, behind its zero
	}
}

// FromProblem is the fault that Problem told: kind, reason and sentence are
// equal. Its cause is the error id, for logs.
func FromProblem(p *commonv1.Problem) *fault.Error {
	f := fault.New(fault.Internal, p.GetReason(), p.GetTitle())
	if k := p.GetKind(); k > commonv1.ProblemKind_PROBLEM_KIND_UNSPECIFIED && k <= commonv1.ProblemKind_PROBLEM_KIND_UNSUPPORTED {
		f.Kind = fault.Kind(k - 1) //nolint:gosec // between 0 and 9
	}
	if f.Reason == "" {
		f.Reason = "INTERNAL"
	}
	if id := p.GetErrorId(); id != "" {
		f.Cause = errors.New("error_id " + id)
	}
	return f
}

// Received is the fault that a service sent, as Send took it. It is false when
// the service said nothing of the kind: a transport's error, a proxy's, or the
// end of a context. What became of the call is then unknown.
func Received(err error) (*fault.Error, bool) {
	sent, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil, false
	}
	for _, d := range sent.Details() {
		if v, err := d.Value(); err == nil {
			if p, ok := v.(*commonv1.Problem); ok {
				return FromProblem(p), true
			}
		}
	}
	if !connect.IsWireError(err) {
		return nil, false
	}
	// Connect's own refusals come before any interceptor and carry no problem.
	for kind, reason := range map[fault.Kind]string{
		fault.Invalid: "INVALID_ARGUMENT", fault.Unauthenticated: "UNAUTHENTICATED", fault.Forbidden: "FORBIDDEN",
		fault.Unsupported: "UNSUPPORTED", fault.Exhausted: "TOO_LARGE",
	} {
		if Code(kind) == sent.Code() {
			return fault.New(kind, reason, sent.Message()), true
		}
	}
	return nil, false
}
