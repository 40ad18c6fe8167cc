-- +goose Up
-- Open reservations, SQLite dialect; sql/postgres/migrations/00005_open.sql has the same indexes. The sweep reads them by lapse; a
-- sum or a count reads those of its account alone, and not those of all others.

DROP INDEX reservations_open;
CREATE INDEX reservations_open ON reservations (expires_at) WHERE state = 0;
CREATE INDEX reservations_held ON reservations (account_n, expires_at) WHERE state = 0;
