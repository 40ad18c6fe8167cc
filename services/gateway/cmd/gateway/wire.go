package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tollgate-platform/tollgate/libs/admission"
	"github.com/tollgate-platform/tollgate/libs/auth"
	"github.com/tollgate-platform/tollgate/libs/chassis/control"
	"github.com/tollgate-platform/tollgate/libs/chassis/process"
	"github.com/tollgate-platform/tollgate/libs/runtime"
	"github.com/tollgate-platform/tollgate/libs/runtime/remote"
	"github.com/tollgate-platform/tollgate/services/gateway"
)

// maxPrincipals bounds the snapshot map.
const maxPrincipals = 1 << 20

// wire makes the gateway and the client of its neighbours. Nothing is dialled:
// while they are away the gateway is unready, and it recovers by itself.
func (s *settings) wire(h *process.Host) (*gateway.Component, *remote.Client, error) {
	s.Registry.ModelsPath = under(h.ConfigDir, s.Registry.ModelsPath)
	issuer, err := auth.OpenIssuer(h.Under(s.Issuer.SecretFile), false)
	if err != nil {
		return nil, nil, fmt.Errorf("auth.issuer_secret_file: %w", err)
	}
	neighbours, err := s.neighbours(h)
	if err != nil {
		return nil, nil, err
	}
	engine, err := admission.NewEngine(admission.Config{MaxPrincipals: maxPrincipals})
	if err != nil {
		return nil, nil, fmt.Errorf("make the admission engine: %w", err)
	}
	background, err := runtime.New(runtime.Options{
		Snapshots: neighbours, Keys: neighbours, Changes: neighbours, Policies: neighbours, Reservations: neighbours,
		Engine: engine, Issuer: issuer, Clock: h.Clock, Log: h.Log,
		ReservationTTL:     time.Duration(s.Ledger.LeaseSecs) * time.Second,
		ReserveTimeout:     time.Duration(s.Ledger.TimeoutMS) * time.Millisecond,
		MaxPendingClosings: s.Ledger.MaxPendingClosings,
		Leases:             neighbours,
		Usage:              neighbours,
		Funding:            s.Leases.Funding(),
		Accounting:         s.Leases.Accounting(),
	})
	if err != nil {
		return nil, nil, err
	}
	deps := gateway.Deps{
		Engine: engine, Runtime: background, Usage: neighbours, LedgerInfo: neighbours.Info,
		Issues: func(ctx context.Context) []string { return issues(ctx, h, neighbours) },
		Env:    h.LookupEnv, Issuer: issuer, Clock: h.Clock, Log: h.Log, Meter: h.Meter("gateway"), MetricsHandler: h.MetricsHandler(),
		TracerProvider: h.Tracer(),
	}
	if s.Receipts.Enabled {
		deps.Receipts = neighbours
	}
	gw, err := gateway.New(s.Config, deps)
	return gw, neighbours, err
}

// neighbours makes the client of the other services.
func (s *settings) neighbours(h *process.Host) (*remote.Client, error) {
	n := s.Neighbours
	o := remote.Options{Interceptors: h.Interceptors(), Log: h.Log}
	for _, at := range []struct {
		key, url string
		to       *remote.Service
	}{
		{"lease_url", n.LeaseURL, &o.Lease},
		{"snapshot_url", n.SnapshotURL, &o.Snapshot},
		{"usage_url", n.UsageURL, &o.Usage},
		{"receipts_url", n.ReceiptsURL, &o.Receipts},
		{"admin_url", n.AdminURL, &o.Admin},
	} {
		if at.url == "" {
			continue
		}
		way := control.ClientOptions{URL: at.url, TokenFile: h.Under(n.TokenFile)}
		if n.CAFile != "" {
			way.CAFile = under(h.ConfigDir, n.CAFile)
		}
		carrier, err := control.NewClient(way)
		if err != nil {
			return nil, fmt.Errorf("neighbours.%s: %w", at.key, err)
		}
		*at.to = remote.Service{HTTP: carrier, URL: at.url}
	}
	client, err := remote.New(o)
	if err != nil {
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	return client, nil
}

// pingTimeout bounds the ledger's part of a readiness probe.
const pingTimeout = time.Second

// issues names what keeps this process from serving, in fixed sentences.
func issues(ctx context.Context, h *process.Host, neighbours *remote.Client) []string {
	out := h.Issues(ctx)
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := neighbours.Ping(ctx); err != nil {
		out = append(out, "the lease service cannot decide now")
	}
	return out
}

// under resolves a relative path on a folder.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
