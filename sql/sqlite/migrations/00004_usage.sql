-- +goose Up
-- When usage was last committed with a key, SQLite dialect; sql/postgres/migrations/00004_usage.sql has the same table.
-- Beside keys, whose revision and pages a use doesn't change; written once a minute and key at most.

CREATE TABLE key_activity (
  key_id            BLOB    PRIMARY KEY NOT NULL CHECK (length(key_id) = 16),
  last_committed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
