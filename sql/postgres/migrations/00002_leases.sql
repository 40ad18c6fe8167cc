-- +goose Up
-- Leases and what they fund, PostgreSQL dialect; sql/sqlite/migrations/00002_leases.sql has the same tables and columns.
-- From here on accounts.open_units, open_topup and open_allowance also sum what the active leases hold unspent:
-- granted - used, its top-up part, and its allowance part in the current epoch. Use takes the allowance part first.

CREATE TABLE leases (
  lease_id           bytea   PRIMARY KEY NOT NULL CHECK (octet_length(lease_id) = 16),
  acquire_id         bytea   NOT NULL UNIQUE CHECK (octet_length(acquire_id) = 16), -- names the attempt that made it
  account_n          bigint  NOT NULL,
  state              bigint  NOT NULL CHECK (state BETWEEN 0 AND 2), -- 0 active, 1 released, 2 reclaimed
  fence              bigint  NOT NULL CHECK (fence > 0),
  granted            bigint  NOT NULL CHECK (granted > 0 AND granted - from_allowance - from_topup = 0),
  from_allowance     bigint  NOT NULL CHECK (from_allowance >= 0),
  from_topup         bigint  NOT NULL CHECK (from_topup >= 0),
  epoch              bigint  NOT NULL CHECK (epoch >= 0), -- the account's, when granted
  used               bigint  NOT NULL CHECK (used >= 0 AND used <= granted), -- billed by events
  -- How an ended lease's granted units are split: used, back to the balance, expired, and
  -- settlement loss, which late usage turns into used.
  credited           bigint  NOT NULL CHECK (credited >= 0),
  expired            bigint  NOT NULL CHECK (expired >= 0),
  loss               bigint  NOT NULL CHECK (loss >= 0),
  acquired_at        bigint  NOT NULL,
  expires_at         bigint  NOT NULL CHECK (expires_at > acquired_at),
  ended_at           bigint  NOT NULL,
  evidence_remaining bigint  NOT NULL CHECK (evidence_remaining >= 0), -- as answered to the acquire
  evidence_until     bigint  NOT NULL,
  CHECK ((state = 0) = (ended_at = 0)),
  CHECK (CASE state WHEN 0 THEN credited + expired + loss = 0 ELSE granted - used - credited - expired - loss = 0 END)
);
CREATE INDEX leases_active ON leases (expires_at, account_n) WHERE state = 0;
-- What retention may delete: an ended lease that left no loss.
CREATE INDEX leases_closed ON leases (ended_at) WHERE state <> 0 AND loss = 0;
CREATE INDEX leases_held ON leases (account_n) WHERE state = 0 OR loss > 0;

-- Of events of source leased: the lease that paid. Items of ingested ones.
ALTER TABLE usage_events ADD COLUMN lease_id bytea NOT NULL DEFAULT ''::bytea CHECK (octet_length(lease_id) IN (0, 16));
ALTER TABLE usage_events ADD COLUMN items bigint NOT NULL DEFAULT 0 CHECK (items >= 0);
