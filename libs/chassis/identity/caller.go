package identity

import (
	"context"
	"net/http"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
)

// Caller is who calls: an identity's name and its role.
type Caller struct {
	Name string
	Role Role
}

type callerKey struct{}

// With gives a context that carries the caller.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From gives the caller that the guard let in. Without one it is an
// Unauthenticated fault: a handler that nothing guards serves nobody.
func From(ctx context.Context) (Caller, error) {
	c, ok := ctx.Value(callerKey{}).(Caller)
	if !ok || c.Role == 0 {
		return Caller{}, fault.New(fault.Unauthenticated, "UNAUTHENTICATED", "the caller is not known")
	}
	return c, nil
}

// Verifier finds out who sends a request by its headers alone. Its error is an
// Unauthenticated fault that names no secret.
type Verifier interface {
	Verify(h http.Header) (Caller, error)
}

// InProcess verifies every request as the caller: the identity of a neighbour
// in the same process, reached over in-memory HTTP. The guard still asks the
// table.
type InProcess Caller

// Verify gives the caller.
func (c InProcess) Verify(http.Header) (Caller, error) { return Caller(c), nil }
