package gateway

import "context"

// Models gives every id and alias of the catalogue in force, disabled ones too:
// what a tenants' file may name.
func (c *Component) Models() []string { return c.generation.Load().Catalog.Known() }

// CloseIdleUpstream drops pooled connections to providers; the next request
// connects anew.
func (c *Component) CloseIdleUpstream() { c.provider.Close() }

// Sync loads keys and policies now; when it returns nil, the next request is
// decided by what the ledger held when it was called.
func (c *Component) Sync(ctx context.Context) error { return c.deps.Runtime.Sync(ctx) }
