-- +goose Up
-- The ledger, PostgreSQL dialect; sql/sqlite/migrations/00001_ledger.sql has the same tables and columns.
-- Instants are unix nanoseconds, 0 = absent; days are counted since 1970 (UTC), minutes likewise.
-- Ids are 16 raw bytes. The hot tables name an account by its integer account_n and carry no
-- foreign key: an account is never deleted, and the decide loop has just read it in the same transaction.

-- Free room in the hot tables' pages keeps their updates off the indexes (HOT).
CREATE TABLE accounts (
  account_n           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  account_id          bytea   NOT NULL UNIQUE CHECK (octet_length(account_id) = 16),
  slug                text    NOT NULL UNIQUE CHECK (octet_length(slug) BETWEEN 1 AND 64),
  display_name        text    NOT NULL,
  status              text    NOT NULL CHECK (status IN ('active', 'suspended', 'closed')),
  status_set_by       text    NOT NULL CHECK (status_set_by IN ('operator', 'provisioner', 'config')),
  origin              text    NOT NULL CHECK (origin IN ('operator', 'provisioner', 'config')),
  capacity_class      text    NOT NULL CHECK (capacity_class IN ('assured', 'best_effort')),
  balance             bigint  NOT NULL CHECK (balance >= 0),
  allowance_balance   bigint  NOT NULL CHECK (allowance_balance >= 0 AND allowance_balance <= balance),
  deposited           bigint  NOT NULL CHECK (deposited >= 0),
  usage_recorded      bigint  NOT NULL CHECK (usage_recorded >= 0),
  overage_recorded    bigint  NOT NULL CHECK (overage_recorded >= 0),
  settlement_loss     bigint  NOT NULL CHECK (settlement_loss >= 0),
  expired             bigint  NOT NULL CHECK (expired >= 0),
  withdrawn           bigint  NOT NULL CHECK (withdrawn >= 0),
  next_fence          bigint  NOT NULL CHECK (next_fence > 0),
  -- Aggregates over the open reservations, so that a refusal can say what is held
  -- and what would come back: all grants; the top-up part of them; the allowance
  -- part of those granted in the current epoch.
  open_count          bigint  NOT NULL CHECK (open_count >= 0),
  open_units          bigint  NOT NULL CHECK (open_units >= 0),
  open_topup          bigint  NOT NULL CHECK (open_topup >= 0),
  open_allowance      bigint  NOT NULL CHECK (open_allowance >= 0),
  -- Units billed to the days of the current budget period (to all days without a budget).
  period_settled      bigint  NOT NULL CHECK (period_settled >= 0),
  budget_period       text    NOT NULL CHECK (budget_period IN ('', 'day', 'month')),
  allowance           bigint  NOT NULL CHECK (allowance >= 0),
  period_start        bigint  NOT NULL,
  rolls_at            bigint  NOT NULL,
  pending_cut         bigint  NOT NULL CHECK (pending_cut >= 0),
  -- What the current epoch took of the allowance for good:
  -- allowance + pending_cut = allowance_balance + open_allowance + allowance_spent.
  allowance_spent     bigint  NOT NULL CHECK (allowance_spent >= 0),
  -- Counts rolls and changes of schedule: a grant of an earlier epoch doesn't return its allowance part.
  epoch               bigint  NOT NULL CHECK (epoch >= 0),
  requests_per_minute bigint  NOT NULL CHECK (requests_per_minute >= 0),
  tokens_per_minute   bigint  NOT NULL CHECK (tokens_per_minute >= 0),
  max_concurrent      bigint  NOT NULL CHECK (max_concurrent >= 0),
  uncapped            bigint  NOT NULL CHECK (uncapped IN (0, 1)),
  created_at          bigint  NOT NULL,
  CHECK ((budget_period = '' AND allowance = 0 AND period_start = 0 AND rolls_at = 0 AND pending_cut = 0 AND allowance_balance = 0 AND allowance_spent = 0)
      OR (budget_period <> '' AND rolls_at > period_start))
) WITH (fillfactor = 50);
CREATE INDEX accounts_due ON accounts (rolls_at, account_n) WHERE rolls_at > 0;

CREATE TABLE keys (
  key_id     bytea   PRIMARY KEY NOT NULL CHECK (octet_length(key_id) = 16),
  account_n  bigint  NOT NULL REFERENCES accounts (account_n),
  name       text    NOT NULL,
  principal  bytea   NOT NULL CHECK (octet_length(principal) = 16),
  digest     bytea   NOT NULL CHECK (octet_length(digest) = 32),
  origin     text    NOT NULL CHECK (origin IN ('operator', 'provisioner', 'config')),
  not_after  bigint  NOT NULL,
  revoked_at bigint  NOT NULL,
  revoked_by text    NOT NULL CHECK (revoked_by IN ('', 'operator', 'provisioner', 'config')),
  revision   bigint  NOT NULL CHECK (revision > 0),
  created_at bigint  NOT NULL,
  CHECK ((revoked_at = 0) = (revoked_by = '')),
  UNIQUE (account_n, name)
);
-- One live credential per principal; a revoked one gives its principal free.
CREATE UNIQUE INDEX keys_principal ON keys (principal) WHERE revoked_at = 0;

CREATE TABLE snapshots (
  principal  bytea   PRIMARY KEY NOT NULL CHECK (octet_length(principal) = 16),
  generation bigint  NOT NULL CHECK (generation > 0),
  revision   bigint  NOT NULL CHECK (revision > 0),
  account_n  bigint  NOT NULL REFERENCES accounts (account_n),
  key_id     bytea   NOT NULL CHECK (octet_length(key_id) = 16),
  tombstone  bigint  NOT NULL CHECK (tombstone IN (0, 1)),
  document   bytea   NOT NULL -- JSON without the generation; empty for a tombstone
);
CREATE INDEX snapshots_account ON snapshots (account_n);

CREATE TABLE policies (
  revision   bytea   PRIMARY KEY NOT NULL CHECK (octet_length(revision) = 32), -- SHA-256 of body
  body       bytea   NOT NULL CHECK (octet_length(body) <= 1048576),
  created_at bigint  NOT NULL
);

-- One row: the revision shared by keys and snapshots, gapless in commit order.
CREATE TABLE revisions (
  one   bigint  PRIMARY KEY CHECK (one = 1),
  value bigint  NOT NULL CHECK (value >= 0)
);
INSERT INTO revisions (one, value) VALUES (1, 0);

CREATE TABLE reservations (
  request_id      bytea   PRIMARY KEY NOT NULL CHECK (octet_length(request_id) = 16),
  account_n       bigint  NOT NULL, -- 0: a tombstone for an account that doesn't exist
  -- 0 open, 1 settled, 2 prompt_only, 3 full, 4 released, 5 swept, 6 tombstone
  state           bigint  NOT NULL CHECK (state BETWEEN 0 AND 6),
  fence           bigint  NOT NULL CHECK (fence >= 0),
  holder_id       bytea   NOT NULL CHECK (octet_length(holder_id) = 16),
  key_id          bytea   NOT NULL CHECK (octet_length(key_id) = 16),
  policy_revision bytea   NOT NULL CHECK (octet_length(policy_revision) = 32),
  granted         bigint  NOT NULL CHECK (granted >= 0 AND granted - from_allowance - from_topup - from_overage = 0),
  from_allowance  bigint  NOT NULL CHECK (from_allowance >= 0),
  from_topup      bigint  NOT NULL CHECK (from_topup >= 0),
  from_overage    bigint  NOT NULL CHECK (from_overage >= 0),
  epoch           bigint  NOT NULL CHECK (epoch >= 0), -- the account's, when granted
  prompt_units    bigint  NOT NULL CHECK (prompt_units >= 0),
  tokens          bigint  NOT NULL CHECK (tokens >= 0), -- charged to the minute of reserved_at
  prompt_tokens   bigint  NOT NULL CHECK (prompt_tokens >= 0),
  reserved_at     bigint  NOT NULL,
  ttl             bigint  NOT NULL CHECK (ttl >= 0), -- of the last grant or renewal
  expires_at      bigint  NOT NULL,
  endpoint        text    NOT NULL,
  model           text    NOT NULL,
  closed_at       bigint  NOT NULL,
  billed          bigint  NOT NULL CHECK (billed >= 0),
  overage         bigint  NOT NULL CHECK (overage >= 0 AND overage <= billed),
  CHECK ((state = 0) = (closed_at = 0)),
  CHECK (state <> 6 OR (granted = 0 AND billed = 0))
);
-- The open ones by lapse; account_n makes the count of an account's lapsed ones an index-only scan.
CREATE INDEX reservations_open ON reservations (expires_at, account_n) WHERE state = 0;
CREATE INDEX reservations_closed ON reservations (closed_at) WHERE state <> 0;

CREATE TABLE usage_events (
  request_id        bytea   PRIMARY KEY NOT NULL CHECK (octet_length(request_id) = 16),
  account_n         bigint  NOT NULL,
  key_id            bytea   NOT NULL CHECK (octet_length(key_id) = 16),
  source            text    NOT NULL CHECK (source IN ('reserved', 'leased', 'overage')),
  outcome           text    NOT NULL CHECK (outcome IN ('settled', 'prompt_only', 'full', 'swept')),
  units             bigint  NOT NULL CHECK (units >= 0),
  overage_units     bigint  NOT NULL CHECK (overage_units >= 0 AND overage_units <= units),
  excess_units      bigint  NOT NULL CHECK (excess_units >= 0 AND excess_units <= units),
  day               bigint  NOT NULL,
  excess_day        bigint  NOT NULL,
  policy_revision   bytea   NOT NULL CHECK (octet_length(policy_revision) = 32),
  endpoint          text    NOT NULL,
  model             text    NOT NULL,
  prompt_tokens     bigint  NOT NULL CHECK (prompt_tokens >= -1), -- -1: not reported, here and below
  cached_tokens     bigint  NOT NULL CHECK (cached_tokens >= -1),
  completion_tokens bigint  NOT NULL CHECK (completion_tokens >= -1),
  reasoning_tokens  bigint  NOT NULL CHECK (reasoning_tokens >= -1),
  committed_at      bigint  NOT NULL
);
CREATE INDEX usage_events_account ON usage_events (account_n, committed_at, request_id);
CREATE INDEX usage_events_age ON usage_events (committed_at);

-- Kept for ever. pruned_units are those whose events retention has deleted, so that
-- settled usage = sum(usage_events.units) + sum(pruned_units) stays exact; pruned_overage
-- likewise for their overage, booked on the day of the grant.
CREATE TABLE day_totals (
  account_n     bigint  NOT NULL,
  day           bigint  NOT NULL,
  requests      bigint  NOT NULL CHECK (requests >= 0),
  units         bigint  NOT NULL CHECK (units >= 0),
  overage_units bigint  NOT NULL CHECK (overage_units >= 0 AND overage_units <= units),
  pruned_units  bigint  NOT NULL CHECK (pruned_units >= 0 AND pruned_units <= units),
  pruned_overage bigint  NOT NULL DEFAULT 0 CHECK (pruned_overage >= 0),
  PRIMARY KEY (account_n, day)
);

-- By minute first: inserts stay at one end, retention is one range.
CREATE TABLE minutes (
  minute    bigint  NOT NULL,
  account_n bigint  NOT NULL,
  requests  bigint  NOT NULL CHECK (requests >= 0),
  tokens    bigint  NOT NULL CHECK (tokens >= 0),
  PRIMARY KEY (minute, account_n)
) WITH (fillfactor = 70);

-- The lapse sweep's memory: when it last ran, and until when it gives cut-off owners time (0: it doesn't wait).
CREATE TABLE sweeps (
  name         text    PRIMARY KEY NOT NULL,
  last_success bigint  NOT NULL,
  waits_until  bigint  NOT NULL
);

CREATE TABLE audit (
  audit_n      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  recorded_at  bigint  NOT NULL,
  actor        text    NOT NULL,
  authority    text    NOT NULL CHECK (authority IN ('operator', 'provisioner', 'config')),
  operation    bytea   NOT NULL CHECK (octet_length(operation) = 16),
  action       text    NOT NULL, -- account.create, account.deposit, key.put, ...
  account_id   bytea   NOT NULL CHECK (octet_length(account_id) IN (0, 16)),
  subject      text    NOT NULL, -- the key, principal or policy, else ''
  reason       text    NOT NULL,
  state_before text    NOT NULL, -- JSON, '{}' when there was nothing
  state_after  text    NOT NULL
);
CREATE INDEX audit_account ON audit (account_id, audit_n);
