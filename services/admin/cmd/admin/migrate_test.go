package main

import (
	"context"

	"github.com/tollgate-platform/tollgate/libs/chassis/jobs"
	"github.com/tollgate-platform/tollgate/libs/ledger/postgres"
)

// migrate makes what `tollgate migrate` makes for this service.
func migrate(ctx context.Context, dsn string) error {
	if err := postgres.Migrate(ctx, dsn); err != nil {
		return err
	}
	return jobs.MigratePostgres(ctx, dsn, jobs.Schema("admin"))
}
