package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
)

// migrateLedger makes the ledger's tables without River's.
func migrateLedger(ctx context.Context, dsn string) error { return postgres.Migrate(ctx, dsn) }

// migrate makes what `tollgate migrate` makes for this service.
func migrate(ctx context.Context, dsn string) error {
	if err := migrateLedger(ctx, dsn); err != nil {
		return err
	}
	return jobs.MigratePostgres(ctx, dsn, jobs.Schema("lease"))
}
