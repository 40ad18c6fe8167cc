// Package memserve serves a component's routes to one test, in memory: real
// HTTP/2 frames, real interceptors, no socket.
package memserve

import (
	"errors"
	"net/http"
	"testing"

	"github.com/tollgate-platform/tollgate/libs/chassis/memnet"
)

// URL is the address that clients of Routes use.
const URL = "http://mem"

// Routes serves the routes until the test ends and gives a client for them.
func Routes(t testing.TB, routes map[string]http.Handler) *http.Client {
	t.Helper()
	mux := http.NewServeMux()
	for path, handler := range routes {
		mux.Handle(path, handler)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	listener := memnet.Listen()
	server := &http.Server{Handler: mux, Protocols: protocols} //nolint:gosec // its only client is the test
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client := listener.Client(true)
	t.Cleanup(func() {
		client.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return client
}
