package tenantfile

import (
	"context"
	"errors"
	"fmt"

	"github.com/tollgate-platform/tollgate/libs/kit/fault"
	"github.com/tollgate-platform/tollgate/libs/kit/ident"
	"github.com/tollgate-platform/tollgate/libs/ledger"
)

// Apply brings the ledger to what the file declares and gives the steps that
// were done, notes included. It is safe to repeat: after an error, call it
// again. A tenant whose step fails is left as it is and the others go on; an
// unavailable ledger ends it at once. Operation names the audit rows.
func Apply(ctx context.Context, store Store, c *Compiled, operation ident.ID) (Diff, error) {
	plan, err := Plan(ctx, store, c)
	if err != nil {
		return Diff{}, err
	}
	by := ledger.Actor{Name: "config", Authority: ledger.ByConfig, Operation: operation}
	var done Diff
	var errs []error
	failed := map[string]bool{}
	for _, s := range plan.Steps {
		if failed[s.Tenant] {
			continue
		}
		if s.Action != Skip {
			if err := s.run(ctx, by); err != nil {
				failed[s.Tenant] = true
				errs = append(errs, fmt.Errorf("%s: %s: %w", s.Tenant, s.Action, err))
				if fault.KindOf(err) == fault.Unavailable || ctx.Err() != nil {
					break
				}
				continue
			}
		}
		done.Steps = append(done.Steps, s)
	}
	return done, errors.Join(errs...)
}
