package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tollgate-platform/tollgate/libs/chassis/wire"
	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/ledger"
	"github.com/tollgate-platform/tollgate/libs/receipt"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/admin/v1/adminv1connect"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/lease/v1/leasev1connect"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/receipts/v1/receiptsv1connect"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/snapshot/v1/snapshotv1connect"
	"github.com/tollgate-platform/tollgate/proto/gen/tollgate/usage/v1/usagev1connect"
)

// Service is how a service is reached.
type Service struct {
	// HTTP carries the calls. It must not have a Timeout of its own: streams live
	// on. HTTP/2 lets all calls share a connection.
	HTTP *http.Client
	URL  string // the base, as "http://127.0.0.1:7100"
}

// Options are what a Client is made of. Log is required, and how to reach every
// service that is called: calls of one without a URL are refused as Unsupported.
// Zero durations and counts take their defaults.
type Options struct {
	// HTTP and URL reach every service that has none of its own.
	Service
	// How single services are reached; what is missing is taken from above.
	Lease, Snapshot, Usage, Receipts, Admin Service
	// Interceptors are put around every call: credentials, traces.
	Interceptors []connect.Interceptor
	// Connect are further options of the clients, as connect.WithGRPC().
	Connect []connect.ClientOption
	Log     *slog.Logger

	CallTimeout time.Duration // one call, its repetitions included; 5 s
	Attempts    int           // of a read; 3
	// WatchSilence is how long the stream of revisions may be silent, several of
	// the service's heartbeats; then it counts as dead. 35 s
	WatchSilence time.Duration
}

// Bounds of the back-offs. The one of the watch starts short, so that a
// restarted service is followed at once.
const (
	retryFirst = 20 * time.Millisecond
	watchFirst = 50 * time.Millisecond
	watchLast  = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 3
	}
	if o.WatchSilence == 0 {
		o.WatchSilence = 35 * time.Second
	}
	return o
}

// services are lease, snapshot, usage, receipts and admin, as they are reached.
func (o Options) services() []Service {
	out := []Service{o.Lease, o.Snapshot, o.Usage, o.Receipts, o.Admin}
	for i := range out {
		if out[i].URL == "" {
			out[i].URL = o.URL
		}
		if out[i].HTTP == nil {
			out[i].HTTP = o.HTTP
		}
	}
	return out
}

// validate reports every fault.
func (o Options) validate() error {
	var faults []error
	if o.Log == nil {
		faults = append(faults, errors.New("remote: Log is required"))
	}
	if o.CallTimeout < 0 || o.Attempts < 0 || o.WatchSilence < 0 {
		faults = append(faults, errors.New("remote: durations and counts must be positive"))
	}
	for _, s := range o.services() {
		if s.URL == "" {
			continue
		}
		u, err := url.Parse(s.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			faults = append(faults, fmt.Errorf("remote: a service's URL must be http:// or https:// and a host, not %q", s.URL))
		}
		if s.HTTP == nil {
			faults = append(faults, fmt.Errorf("remote: %s: an HTTP client is required", s.URL))
		} else if s.HTTP.Timeout != 0 {
			faults = append(faults, fmt.Errorf("remote: %s: the HTTP client must have no timeout of its own: it would end the watch", s.URL))
		}
	}
	return errors.Join(faults...)
}

// Client is the services as a ledger.
type Client struct {
	opt Options

	lease     leasev1connect.LeaseServiceClient
	snapshot  snapshotv1connect.SnapshotServiceClient
	usage     usagev1connect.UsageServiceClient
	receipts  receiptsv1connect.ReceiptsServiceClient
	admin     adminv1connect.AdminServiceClient
	revisions revisions

	mu   sync.Mutex
	info ledger.Info // as last told
}

var (
	_ ledger.Reservations   = (*Client)(nil)
	_ ledger.LeaseAllocator = (*Client)(nil)
	_ ledger.UsageSink      = (*Client)(nil)
	_ ledger.UsageQueries   = (*Client)(nil)
	_ ledger.SnapshotSource = (*Client)(nil)
	_ ledger.KeySource      = (*Client)(nil)
	_ ledger.Changes        = (*Client)(nil)
	_ ledger.Policies       = (*Client)(nil)
	_ receipt.Appender      = (*Client)(nil)
)

// New checks the options. It connects to nothing.
func New(o Options) (*Client, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	options := append([]connect.ClientOption{
		connect.WithReadMaxBytes(wire.MaxMessage), connect.WithInterceptors(o.Interceptors...),
	}, o.Connect...)
	c := &Client{opt: o, info: ledger.Info{Backend: "remote", Durability: "unknown", ReplicaMode: "unknown"}}
	c.revisions.init()
	// A service without a URL keeps a nil client, which absent answers for.
	for i, dial := range []func(h *http.Client, u string){
		func(h *http.Client, u string) {
			c.lease = leasev1connect.NewLeaseServiceClient(h, u, append(slices.Clip(options), connect.WithReadMaxBytes(wire.MaxAnswerMessage))...)
		},
		func(h *http.Client, u string) {
			c.snapshot = snapshotv1connect.NewSnapshotServiceClient(h, u, options...)
		},
		func(h *http.Client, u string) { c.usage = usagev1connect.NewUsageServiceClient(h, u, options...) },
		func(h *http.Client, u string) {
			c.receipts = receiptsv1connect.NewReceiptsServiceClient(h, u, options...)
		},
		func(h *http.Client, u string) { c.admin = adminv1connect.NewAdminServiceClient(h, u, options...) },
	} {
		if s := o.services()[i]; s.URL != "" {
			dial(s.HTTP, s.URL)
		}
	}
	return c, nil
}

func absent(service string) error {
	return fault.New(fault.Unsupported, "UNSUPPORTED", "this process was started without the address of the "+service+" service")
}

// Close frees the idle connections of the HTTP clients.
func (c *Client) Close() error {
	for _, s := range c.opt.services() {
		if s.HTTP != nil {
			s.HTTP.CloseIdleConnections()
		}
	}
	return nil
}

// once makes one call within its deadline. What may have taken effect goes
// through it.
func once[Req, Res any](ctx context.Context, c *Client, call func(context.Context, *Req) (*Res, error), req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	res, err := call(ctx, req)
	if err != nil {
		return nil, received(ctx, err)
	}
	return res, nil
}

// repeat makes a call that changes nothing, or nothing twice, and repeats it
// while nobody answers and there is time.
func repeat[Req, Res any](ctx context.Context, c *Client, call func(context.Context, *Req) (*Res, error), req *Req) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CallTimeout)
	defer cancel()
	backoff := retryFirst
	for attempt := 1; ; attempt++ {
		res, err := call(ctx, req)
		if err == nil {
			return res, nil
		}
		err = received(ctx, err)
		if attempt >= c.opt.Attempts || fault.KindOf(err) != fault.Unavailable || !pause(ctx, backoff) {
			return nil, err
		}
		backoff *= 4
	}
}

// received makes an error of a call the one that the ledger itself would give.
func received(ctx context.Context, err error) error {
	if f, ok := wire.Received(err); ok {
		return f
	}
	if ctx.Err() != nil {
		return fault.Because(fault.Unavailable, "LEDGER_TIMEOUT", "the ledger did not answer in time; the operation may have taken effect", errors.Join(ctx.Err(), err))
	}
	switch connect.CodeOf(err) {
	case connect.CodeDeadlineExceeded:
		return fault.Because(fault.Unavailable, "LEDGER_TIMEOUT", "the ledger did not answer in time; the operation may have taken effect", errors.Join(context.DeadlineExceeded, err))
	default:
		return fault.Because(fault.Unavailable, "LEDGER_UNAVAILABLE", "the ledger is unavailable; try again", err)
	}
}

// unreadable is an answer that breaks its contract. Whether the call took effect
// is unknown.
func unreadable(err error) error {
	return fault.Because(fault.Internal, "ANSWER_UNREADABLE", "a service's answer breaks its contract", err)
}

// pause waits for about d unless ctx ends first: callers that failed together
// don't come back together.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
