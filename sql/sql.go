// Package sql holds the schema of the ledger in two dialects and applies it.
//
// The migrations are embedded, so a binary carries the schema it was built
// for. Migrate brings a database up to it and never down; Check lets a service
// refuse a database that is older, newer or not one of ours. The queries
// beside the migrations are the input of sqlc and not part of this package.
//
// Concurrency: Migrate holds a session lock on PostgreSQL, so that replicas
// which start together migrate once; on SQLite the caller holds the file's
// lock. Failure: a migration runs in a transaction, a failed one leaves the
// version where it was.
package sql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// Dialect is one of the two databases the ledger runs on.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	SQLite   Dialect = "sqlite"
)

// versionTable is where goose records what was applied. It has a name of its
// own because River and others migrate the same PostgreSQL database.
const versionTable = "tollgate_schema_version"

// ErrSchema says that a database's schema is not the one this build was made
// for; the error that wraps it says which version it has and what to do.
var ErrSchema = errors.New("the database schema is not the one of this build")

//go:embed postgres/migrations/*.sql sqlite/migrations/*.sql
var embedded embed.FS

// Migrations gives the migration files of a dialect, named in goose's format.
func Migrations(d Dialect) (fs.FS, error) {
	if d != Postgres && d != SQLite {
		return nil, fmt.Errorf("unknown SQL dialect %q", d)
	}
	return fs.Sub(embedded, string(d)+"/migrations")
}

// Latest gives the version this build's schema of d has.
func Latest(d Dialect) (int64, error) {
	files, err := Migrations(d)
	if err != nil {
		return 0, err
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return 0, err
	}
	var latest int64
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", name, err)
		}
		latest = max(latest, v)
	}
	return latest, nil
}

// Migrate applies what is missing and says how many migrations it applied. It
// refuses, with ErrSchema, a database that is newer than this build.
func Migrate(ctx context.Context, d Dialect, db *sql.DB) (applied int, err error) {
	latest, err := Latest(d)
	if err != nil {
		return 0, err
	}
	return MigrateTo(ctx, d, db, latest)
}

// MigrateTo is Migrate up to a version: the schema of an earlier build, for
// tests of what became of its rows.
func MigrateTo(ctx context.Context, d Dialect, db *sql.DB, target int64) (applied int, err error) {
	p, err := provider(d, db)
	if err != nil {
		return 0, err
	}
	current, _, err := p.GetVersions(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	if current > target {
		return 0, newer(current, target)
	}
	done, err := p.UpTo(ctx, target)
	if err != nil {
		return 0, fmt.Errorf("migrate from version %d to %d: %w", current, target, err)
	}
	return len(done), nil
}

// Check refuses, with ErrSchema, a database whose schema is missing, older or
// newer than this build's. It writes nothing.
func Check(ctx context.Context, d Dialect, db *sql.DB) error {
	target, err := Latest(d)
	if err != nil {
		return err
	}
	store, err := database.NewStore(gooseDialect(d), versionTable)
	if err != nil {
		return err
	}
	current, err := store.GetLatestVersion(ctx, db)
	switch {
	case errors.Is(err, database.ErrVersionNotFound):
		return fmt.Errorf("%w: it holds no version; run `tollgate migrate`", ErrSchema)
	case err != nil:
		// The table is missing, or the database can't be asked: either way this is no schema of ours.
		return fmt.Errorf("%w: its version can't be read; run `tollgate migrate`: %w", ErrSchema, err)
	case current < target:
		return fmt.Errorf("%w: it has version %d and this build needs %d; run `tollgate migrate`", ErrSchema, current, target)
	case current > target:
		return newer(current, target)
	}
	return nil
}

func newer(current, target int64) error {
	return fmt.Errorf("%w: it has version %d and this build knows %d; run a newer build", ErrSchema, current, target)
}

func gooseDialect(d Dialect) database.Dialect {
	if d == Postgres {
		return database.DialectPostgres
	}
	return database.DialectSQLite3
}

func provider(d Dialect, db *sql.DB) (*goose.Provider, error) {
	files, err := Migrations(d)
	if err != nil {
		return nil, err
	}
	opts := []goose.ProviderOption{
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true),
	}
	if d == Postgres {
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(gooseDialect(d), db, files, opts...)
}
