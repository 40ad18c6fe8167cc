-- +goose Up
-- The ledger, SQLite dialect; sql/postgres/migrations/00001_ledger.sql has the same tables and columns.
-- Instants are unix nanoseconds, 0 = absent; days are counted since 1970 (UTC), minutes likewise.
-- Ids are 16 raw bytes. The hot tables name an account by its integer account_n and carry no
-- foreign key: an account is never deleted, and the decide loop has just read it in the same transaction.

CREATE TABLE accounts (
  account_n           INTEGER PRIMARY KEY,
  account_id          BLOB    NOT NULL UNIQUE CHECK (length(account_id) = 16),
  slug                TEXT    NOT NULL UNIQUE CHECK (length(slug) BETWEEN 1 AND 64),
  display_name        TEXT    NOT NULL,
  status              TEXT    NOT NULL CHECK (status IN ('active', 'suspended', 'closed')),
  status_set_by       TEXT    NOT NULL CHECK (status_set_by IN ('operator', 'provisioner', 'config')),
  origin              TEXT    NOT NULL CHECK (origin IN ('operator', 'provisioner', 'config')),
  capacity_class      TEXT    NOT NULL CHECK (capacity_class IN ('assured', 'best_effort')),
  balance             INTEGER NOT NULL CHECK (balance >= 0),
  allowance_balance   INTEGER NOT NULL CHECK (allowance_balance >= 0 AND allowance_balance <= balance),
  deposited           INTEGER NOT NULL CHECK (deposited >= 0),
  usage_recorded      INTEGER NOT NULL CHECK (usage_recorded >= 0),
  overage_recorded    INTEGER NOT NULL CHECK (overage_recorded >= 0),
  settlement_loss     INTEGER NOT NULL CHECK (settlement_loss >= 0),
  expired             INTEGER NOT NULL CHECK (expired >= 0),
  withdrawn           INTEGER NOT NULL CHECK (withdrawn >= 0),
  next_fence          INTEGER NOT NULL CHECK (next_fence > 0),
  -- Aggregates over the open reservations, so that a refusal can say what is held
  -- and what would come back: all grants; the top-up part of them; the allowance
  -- part of those granted in the current epoch.
  open_count          INTEGER NOT NULL CHECK (open_count >= 0),
  open_units          INTEGER NOT NULL CHECK (open_units >= 0),
  open_topup          INTEGER NOT NULL CHECK (open_topup >= 0),
  open_allowance      INTEGER NOT NULL CHECK (open_allowance >= 0),
  -- Units billed to the days of the current budget period (to all days without a budget).
  period_settled      INTEGER NOT NULL CHECK (period_settled >= 0),
  budget_period       TEXT    NOT NULL CHECK (budget_period IN ('', 'day', 'month')),
  allowance           INTEGER NOT NULL CHECK (allowance >= 0),
  period_start        INTEGER NOT NULL,
  rolls_at            INTEGER NOT NULL,
  pending_cut         INTEGER NOT NULL CHECK (pending_cut >= 0),
  -- What the current epoch took of the allowance for good:
  -- allowance + pending_cut = allowance_balance + open_allowance + allowance_spent.
  allowance_spent     INTEGER NOT NULL CHECK (allowance_spent >= 0),
  -- Counts rolls and changes of schedule: a grant of an earlier epoch doesn't return its allowance part.
  epoch               INTEGER NOT NULL CHECK (epoch >= 0),
  requests_per_minute INTEGER NOT NULL CHECK (requests_per_minute >= 0),
  tokens_per_minute   INTEGER NOT NULL CHECK (tokens_per_minute >= 0),
  max_concurrent      INTEGER NOT NULL CHECK (max_concurrent >= 0),
  uncapped            INTEGER NOT NULL CHECK (uncapped IN (0, 1)),
  created_at          INTEGER NOT NULL,
  CHECK ((budget_period = '' AND allowance = 0 AND period_start = 0 AND rolls_at = 0 AND pending_cut = 0 AND allowance_balance = 0 AND allowance_spent = 0)
      OR (budget_period <> '' AND rolls_at > period_start))
) STRICT;
CREATE INDEX accounts_due ON accounts (rolls_at, account_n) WHERE rolls_at > 0;

CREATE TABLE keys (
  key_id     BLOB    PRIMARY KEY NOT NULL CHECK (length(key_id) = 16),
  account_n  INTEGER NOT NULL REFERENCES accounts (account_n),
  name       TEXT    NOT NULL,
  principal  BLOB    NOT NULL CHECK (length(principal) = 16),
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),
  origin     TEXT    NOT NULL CHECK (origin IN ('operator', 'provisioner', 'config')),
  not_after  INTEGER NOT NULL,
  revoked_at INTEGER NOT NULL,
  revoked_by TEXT    NOT NULL CHECK (revoked_by IN ('', 'operator', 'provisioner', 'config')),
  revision   INTEGER NOT NULL CHECK (revision > 0),
  created_at INTEGER NOT NULL,
  CHECK ((revoked_at = 0) = (revoked_by = '')),
  UNIQUE (account_n, name)
) STRICT, WITHOUT ROWID;
-- One live credential per principal; a revoked one gives its principal free.
CREATE UNIQUE INDEX keys_principal ON keys (principal) WHERE revoked_at = 0;

CREATE TABLE snapshots (
  principal  BLOB    PRIMARY KEY NOT NULL CHECK (length(principal) = 16),
  generation INTEGER NOT NULL CHECK (generation > 0),
  revision   INTEGER NOT NULL CHECK (revision > 0),
  account_n  INTEGER NOT NULL REFERENCES accounts (account_n),
  key_id     BLOB    NOT NULL CHECK (length(key_id) = 16),
  tombstone  INTEGER NOT NULL CHECK (tombstone IN (0, 1)),
  document   BLOB    NOT NULL -- JSON without the generation; empty for a tombstone
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshots_account ON snapshots (account_n);

CREATE TABLE policies (
  revision   BLOB    PRIMARY KEY NOT NULL CHECK (length(revision) = 32), -- SHA-256 of body
  body       BLOB    NOT NULL CHECK (length(body) <= 1048576),
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row: the revision shared by keys and snapshots, gapless in commit order.
CREATE TABLE revisions (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  value INTEGER NOT NULL CHECK (value >= 0)
) STRICT;
INSERT INTO revisions (one, value) VALUES (1, 0);

CREATE TABLE reservations (
  request_id      BLOB    PRIMARY KEY NOT NULL CHECK (length(request_id) = 16),
  account_n       INTEGER NOT NULL, -- 0: a tombstone for an account that doesn't exist
  -- 0 open, 1 settled, 2 prompt_only, 3 full, 4 released, 5 swept, 6 tombstone
  state           INTEGER NOT NULL CHECK (state BETWEEN 0 AND 6),
  fence           INTEGER NOT NULL CHECK (fence >= 0),
  holder_id       BLOB    NOT NULL CHECK (length(holder_id) = 16),
  key_id          BLOB    NOT NULL CHECK (length(key_id) = 16),
  policy_revision BLOB    NOT NULL CHECK (length(policy_revision) = 32),
  granted         INTEGER NOT NULL CHECK (granted >= 0 AND granted - from_allowance - from_topup - from_overage = 0),
  from_allowance  INTEGER NOT NULL CHECK (from_allowance >= 0),
  from_topup      INTEGER NOT NULL CHECK (from_topup >= 0),
  from_overage    INTEGER NOT NULL CHECK (from_overage >= 0),
  epoch           INTEGER NOT NULL CHECK (epoch >= 0), -- the account's, when granted
  prompt_units    INTEGER NOT NULL CHECK (prompt_units >= 0),
  tokens          INTEGER NOT NULL CHECK (tokens >= 0), -- charged to the minute of reserved_at
  prompt_tokens   INTEGER NOT NULL CHECK (prompt_tokens >= 0),
  reserved_at     INTEGER NOT NULL,
  ttl             INTEGER NOT NULL CHECK (ttl >= 0), -- of the last grant or renewal
  expires_at      INTEGER NOT NULL,
  endpoint        TEXT    NOT NULL,
  model           TEXT    NOT NULL,
  closed_at       INTEGER NOT NULL,
  billed          INTEGER NOT NULL CHECK (billed >= 0),
  overage         INTEGER NOT NULL CHECK (overage >= 0 AND overage <= billed),
  CHECK ((state = 0) = (closed_at = 0)),
  CHECK (state <> 6 OR (granted = 0 AND billed = 0))
) STRICT, WITHOUT ROWID;
-- The open ones by lapse; account_n makes the count of an account's lapsed ones an index-only scan.
CREATE INDEX reservations_open ON reservations (expires_at, account_n) WHERE state = 0;
CREATE INDEX reservations_closed ON reservations (closed_at) WHERE state <> 0;

CREATE TABLE usage_events (
  request_id        BLOB    PRIMARY KEY NOT NULL CHECK (length(request_id) = 16),
  account_n         INTEGER NOT NULL,
  key_id            BLOB    NOT NULL CHECK (length(key_id) = 16),
  source            TEXT    NOT NULL CHECK (source IN ('reserved', 'leased', 'overage')),
  outcome           TEXT    NOT NULL CHECK (outcome IN ('settled', 'prompt_only', 'full', 'swept')),
  units             INTEGER NOT NULL CHECK (units >= 0),
  overage_units     INTEGER NOT NULL CHECK (overage_units >= 0 AND overage_units <= units),
  excess_units      INTEGER NOT NULL CHECK (excess_units >= 0 AND excess_units <= units),
  day               INTEGER NOT NULL,
  excess_day        INTEGER NOT NULL,
  policy_revision   BLOB    NOT NULL CHECK (length(policy_revision) = 32),
  endpoint          TEXT    NOT NULL,
  model             TEXT    NOT NULL,
  prompt_tokens     INTEGER NOT NULL CHECK (prompt_tokens >= -1), -- -1: not reported, here and below
  cached_tokens     INTEGER NOT NULL CHECK (cached_tokens >= -1),
  completion_tokens INTEGER NOT NULL CHECK (completion_tokens >= -1),
  reasoning_tokens  INTEGER NOT NULL CHECK (reasoning_tokens >= -1),
  committed_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_events_account ON usage_events (account_n, committed_at, request_id);
CREATE INDEX usage_events_age ON usage_events (committed_at);

-- Kept for ever. pruned_units are those whose events retention has deleted, so that
-- settled usage = sum(usage_events.units) + sum(pruned_units) stays exact; pruned_overage
-- likewise for their overage, booked on the day of the grant.
CREATE TABLE day_totals (
  account_n     INTEGER NOT NULL,
  day           INTEGER NOT NULL,
  requests      INTEGER NOT NULL CHECK (requests >= 0),
  units         INTEGER NOT NULL CHECK (units >= 0),
  overage_units INTEGER NOT NULL CHECK (overage_units >= 0 AND overage_units <= units),
  pruned_units  INTEGER NOT NULL CHECK (pruned_units >= 0 AND pruned_units <= units),
  pruned_overage INTEGER NOT NULL DEFAULT 0 CHECK (pruned_overage >= 0),
  PRIMARY KEY (account_n, day)
) STRICT, WITHOUT ROWID;

-- By minute first: inserts stay at one end, retention is one range.
CREATE TABLE minutes (
  minute    INTEGER NOT NULL,
  account_n INTEGER NOT NULL,
  requests  INTEGER NOT NULL CHECK (requests >= 0),
  tokens    INTEGER NOT NULL CHECK (tokens >= 0),
  PRIMARY KEY (minute, account_n)
) STRICT, WITHOUT ROWID;

-- The lapse sweep's memory: when it last ran, and until when it gives cut-off owners time (0: it doesn't wait).
CREATE TABLE sweeps (
  name         TEXT    PRIMARY KEY NOT NULL,
  last_success INTEGER NOT NULL,
  waits_until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  audit_n      INTEGER PRIMARY KEY AUTOINCREMENT,
  recorded_at  INTEGER NOT NULL,
  actor        TEXT    NOT NULL,
  authority    TEXT    NOT NULL CHECK (authority IN ('operator', 'provisioner', 'config')),
  operation    BLOB    NOT NULL CHECK (length(operation) = 16),
  action       TEXT    NOT NULL, -- account.create, account.deposit, key.put, ...
  account_id   BLOB    NOT NULL CHECK (length(account_id) IN (0, 16)),
  subject      TEXT    NOT NULL, -- the key, principal or policy, else ''
  reason       TEXT    NOT NULL,
  state_before TEXT    NOT NULL, -- JSON, '{}' when there was nothing
  state_after  TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_account ON audit (account_id, audit_n);
