-- +goose Up
-- When usage was last committed with a key, PostgreSQL dialect; sql/sqlite/migrations/00004_usage.sql has the same table.
-- Beside keys, whose revision and pages a use doesn't change; written once a minute and key at most.

CREATE TABLE key_activity (
  key_id            bytea  PRIMARY KEY NOT NULL CHECK (octet_length(key_id) = 16),
  last_committed_at bigint NOT NULL
);
