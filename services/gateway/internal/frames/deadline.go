package frames

import (
	"net/http"
	"time"

	"github.com/tollgate-platform/tollgate/libs/kit/clock"
)

const (
	// flushTimeout is the write deadline of each flush: a reader slower than it
	// is a hang-up.
	flushTimeout = 30 * time.Second
	// deadlineSlack is how stale the deadline may get before it is moved again.
	// Moving it for every frame would cost more than the frame.
	deadlineSlack = time.Second
)

// A Deadline bounds each flush of one answer. Its zero value is ready; it
// belongs to one writer.
type Deadline struct{ stands time.Time }

// Extend moves the write deadline when the one that stands is too near. Socket
// deadlines are wall-clock time whatever clock policy runs on.
func (d *Deadline) Extend(rc *http.ResponseController) {
	next := clock.System{}.Now().Add(flushTimeout)
	if next.Sub(d.stands) < deadlineSlack {
		return
	}
	d.stands = next
	_ = rc.SetWriteDeadline(next) // a transport without deadlines bounds its writes itself
}

// Clear takes the deadline away: the connection outlives the answer.
func (d *Deadline) Clear(rc *http.ResponseController) {
	if !d.stands.IsZero() {
		_ = rc.SetWriteDeadline(time.Time{})
	}
}
