-- +goose Up
-- Open reservations, PostgreSQL dialect; sql/sqlite/migrations/00005_open.sql has the same indexes.
-- reservations_open is the sweep's, in the order of lapse; its condition on expires_at keeps it out of every other plan.
-- reservations_held answers what is asked of one account, without reading the open reservations of all others.

DROP INDEX reservations_open;
CREATE INDEX reservations_open ON reservations (expires_at, request_id) WHERE state = 0 AND expires_at > 0;
CREATE INDEX reservations_held ON reservations (account_n, expires_at) WHERE state = 0;

-- Usage updates a lease over and over, but no column of an index: with room on its page no index is written.
ALTER TABLE leases SET (fillfactor = 70);
