-- +goose Up
-- Idempotency claims and sealed answers, PostgreSQL dialect; sql/sqlite/migrations/00003_idempotency.sql has the same tables and columns.

-- 1: the reservation has a claim. A release frees it, retention takes it once the request ended long enough ago.
ALTER TABLE reservations ADD COLUMN claimed bigint NOT NULL DEFAULT 0 CHECK (claimed IN (0, 1));
-- Closed reservations by age, in two parts, so that each of the two retentions reads a range of its own rows.
DROP INDEX reservations_closed;
CREATE INDEX reservations_closed ON reservations (closed_at) WHERE state <> 0 AND claimed = 0;
CREATE INDEX reservations_claimed ON reservations (closed_at) WHERE state <> 0 AND claimed = 1;

-- One row for each key in use: a reservation of the account holds it. It changes only under the lock of the account.
CREATE TABLE idempotency_claims (
  account_n   bigint NOT NULL,
  key_hash    bytea  NOT NULL CHECK (octet_length(key_hash) = 32),
  format      text   NOT NULL CHECK (length(format) BETWEEN 1 AND 64),
  request_id  bytea  NOT NULL UNIQUE CHECK (octet_length(request_id) = 16),
  fingerprint bytea  NOT NULL CHECK (octet_length(fingerprint) = 32),
  PRIMARY KEY (account_n, key_hash, format)
);

-- What a claimed request answered, sealed by its holder: it doesn't compress.
CREATE TABLE sealed_answers (
  request_id bytea PRIMARY KEY NOT NULL CHECK (octet_length(request_id) = 16),
  answer     bytea NOT NULL CHECK (octet_length(answer) BETWEEN 1 AND 9437184)
);
ALTER TABLE sealed_answers ALTER COLUMN answer SET STORAGE EXTERNAL;
