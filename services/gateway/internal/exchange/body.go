package exchange

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
	"github.com/tollgate-platform/tollgate/services/gateway/internal/refusal"
)

// ReadBody takes in the whole body of r, within its limit and its time.
func (c *Core) ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal.Refusal) {
	limit := c.Settings.BodyLimit
	tooLarge := func() *refusal.Refusal {
		return refusal.New(refusal.PayloadTooLarge, "the body must hold at most "+strconv.FormatInt(limit, 10)+" bytes")
	}
	if r.ContentLength > limit {
		return nil, tooLarge()
	}
	rc := http.NewResponseController(w)
	// Socket deadlines are wall-clock time whatever clock policy runs on.
	_ = rc.SetReadDeadline(clock.System{}.Now().Add(c.Settings.BodyTimeout))
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	_ = rc.SetReadDeadline(time.Time{}) // the caller may now listen for as long as it likes
	if err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return nil, tooLarge()
		}
		return nil, refusal.Because(refusal.RequestTimeout, "the body did not arrive whole and in time", err)
	}
	return body, nil
}

// readAll is io.ReadAll with room for what was declared.
func readAll(r io.Reader, declared int64) ([]byte, error) {
	const first = 512
	buf := make([]byte, 0, max(declared+1, first))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}
