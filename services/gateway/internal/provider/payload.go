package provider

import (
	"io"
	"net/http"
)

// A payload is the body of one upstream request. The transport keeps its
// request for as long as the answer lasts; with bytes.Reader it would keep a
// long prompt, too, for the whole of a long stream.
type payload struct{ data []byte }

// attach makes p the body of req. The transport may ask for it anew while it
// looks for a connection that is alive.
func (p *payload) attach(req *http.Request) {
	req.ContentLength = int64(len(p.data))
	req.Body = &unsent{p.data}
	req.GetBody = func() (io.ReadCloser, error) { return &unsent{p.data}, nil }
}

// forget lets go of the body. It must not be called before RoundTrip has
// returned; a body still on its way is not affected.
func (p *payload) forget() { p.data = nil }

// unsent is what of a body is still to be sent.
type unsent struct{ left []byte }

// Read implements io.Reader.
func (u *unsent) Read(b []byte) (int, error) {
	if len(u.left) == 0 {
		u.left = nil
		return 0, io.EOF
	}
	n := copy(b, u.left)
	u.left = u.left[n:]
	return n, nil
}

// Close implements io.Closer.
func (*unsent) Close() error { return nil }
