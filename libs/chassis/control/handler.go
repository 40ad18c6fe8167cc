package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/tollgate-platform/tollgate/libs/chassis/identity"
	"github.com/tollgate-platform/tollgate/libs/chassis/run"
)

// Bounds of health and reflection, which have no business with large messages.
const (
	maxSmallMessage = 64 << 10
	healthTimeout   = time.Second
)

// Roles are those of what every control listener serves besides its services.
func Roles() identity.Table {
	operator := identity.Of(identity.Operator)
	return identity.Table{
		"/grpc.health.v1.Health/Check":                                   identity.Anyone,
		"/grpc.health.v1.Health/Watch":                                   identity.Anyone,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      operator,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": operator,
	}
}

// NewHandler serves the routes of the components, health and reflection, each
// procedure to the roles of its component's table and to nobody else. Ready says
// why the whole process is unfit for traffic; health asks it for the empty
// service, and a component's own Ready for its services. A path that no
// component routes is a plain 404.
func NewHandler(components []run.Component, who identity.Verifier, ready func(context.Context) error, log *slog.Logger) (http.Handler, error) {
	routes := services{}
	checks := checker{"": ready}
	var served []string
	for _, c := range components {
		for _, path := range slices.Sorted(maps.Keys(c.Routes)) {
			if err := routes.add(path, c.Routes[path]); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			name := strings.Trim(path, "/")
			checks[name] = c.Ready
			served = append(served, name)
		}
	}
	slices.Sort(served)
	small := []connect.HandlerOption{connect.WithReadMaxBytes(maxSmallMessage)}
	routes.own(grpchealth.NewHandler(checks, small...))
	reflector := grpcreflect.NewStaticReflector(served...)
	routes.own(grpcreflect.NewHandlerV1(reflector, small...))
	routes.own(grpcreflect.NewHandlerV1Alpha(reflector, small...))
	table, err := Merge(components)
	if err != nil {
		return nil, err
	}
	guarded := identity.Guard(who, table, log, routes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, routed := routes[prefix(r.URL.Path)]; !routed {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		guarded.ServeHTTP(w, r)
	}), nil
}

// Merge gives the one table of a listener: every component's and Roles. A
// procedure that two declare is an error.
func Merge(components []run.Component) (identity.Table, error) {
	table := Roles()
	for _, c := range components {
		for procedure, set := range c.Roles {
			if _, twice := table[procedure]; twice {
				return nil, fmt.Errorf("%s: the roles of %s are declared twice", c.Name, procedure)
			}
			table[procedure] = set
		}
	}
	return table, nil
}

// services routes by "/package.Service/", exactly: nothing is cleaned or
// redirected, so the guard and the handler see one path.
type services map[string]http.Handler

func (s services) add(path string, h http.Handler) error {
	if prefix(path) != path {
		return fmt.Errorf("the route %q must be /package.Service/", path)
	}
	if _, twice := s[path]; twice {
		return fmt.Errorf("the route %q is served twice", path)
	}
	s[path] = h
	return nil
}

// own adds a route of the listener itself, whose path is never a component's.
func (s services) own(path string, h http.Handler) { s[path] = h }

// ServeHTTP serves a path that is routed.
func (s services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s[prefix(r.URL.Path)].ServeHTTP(w, r)
}

// prefix gives "/package.Service/" of a procedure's path, or "".
func prefix(path string) string {
	if len(path) < 2 || path[0] != '/' {
		return ""
	}
	cut := strings.IndexByte(path[1:], '/')
	if cut < 1 {
		return ""
	}
	return path[:cut+2]
}

// checker answers health by service name; "" is the process.
type checker map[string]func(context.Context) error

// Check says whether the service is fit for traffic, never why not.
func (c checker) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	ready, known := c[req.Service]
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("the service is not served here"))
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if ready != nil && ready(ctx) != nil {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
}
