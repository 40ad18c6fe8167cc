-- name: AccountsLoad :many
-- AccountsLoad reads the accounts of a JSON array of ids in hex; unknown ids are missing from the answer.
SELECT
  account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance,
  allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled, budget_period, allowance,
  period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute,
  max_concurrent, uncapped, created_at
FROM accounts
WHERE account_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: AccountsLoadByN :many
-- AccountsLoadByN is AccountsLoad by the integer keys.
SELECT
  account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance,
  allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled, budget_period, allowance,
  period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute,
  max_concurrent, uncapped, created_at
FROM accounts
WHERE account_n IN (SELECT j.value FROM json_each(CAST(@ns AS TEXT)) AS j);

-- name: AccountFind :one
SELECT
  account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance,
  allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled, budget_period, allowance,
  period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute,
  max_concurrent, uncapped, created_at
FROM accounts WHERE account_id = @account_id;

-- name: AccountFindSlug :one
SELECT
  account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance,
  allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled, budget_period, allowance,
  period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute,
  max_concurrent, uncapped, created_at
FROM accounts WHERE slug = @slug;

-- name: AccountList :many
-- AccountList reads a page in id order, after an id.
SELECT
  account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance,
  allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled, budget_period, allowance,
  period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute,
  max_concurrent, uncapped, created_at
FROM accounts WHERE account_id > @after ORDER BY account_id LIMIT @max_rows;

-- name: AccountListDue :many
-- AccountListDue reads accounts whose period has ended at now, the most overdue first.
SELECT
  account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance,
  allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled, budget_period, allowance,
  period_start, rolls_at, pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute,
  max_concurrent, uncapped, created_at
FROM accounts WHERE rolls_at > 0 AND rolls_at <= @now ORDER BY rolls_at, account_n LIMIT @max_rows;

-- name: AccountInsert :one
-- AccountInsert gives the new account's integer key; a known id or slug is a constraint error.
INSERT INTO accounts (
  account_id, slug, display_name, status, status_set_by, origin, capacity_class, balance, allowance_balance,
  deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn, next_fence, open_count,
  open_units, open_topup, open_allowance, period_settled, budget_period, allowance, period_start, rolls_at,
  pending_cut, allowance_spent, epoch, requests_per_minute, tokens_per_minute, max_concurrent, uncapped,
  created_at
) VALUES (
  @account_id, @slug, @display_name, @status, @status_set_by, @origin, @capacity_class, @balance,
  @allowance_balance, @deposited, @usage_recorded, @overage_recorded, @settlement_loss, @expired, @withdrawn,
  @next_fence, @open_count, @open_units, @open_topup, @open_allowance, @period_settled, @budget_period,
  @allowance, @period_start, @rolls_at, @pending_cut, @allowance_spent, @epoch, @requests_per_minute,
  @tokens_per_minute, @max_concurrent, @uncapped, @created_at
) RETURNING account_n;

-- name: AccountMove :exec
-- AccountMove writes what most transitions of units change: no column of an index, so that no index is written.
UPDATE accounts SET
  balance = @balance, allowance_balance = @allowance_balance, usage_recorded = @usage_recorded,
  overage_recorded = @overage_recorded, settlement_loss = @settlement_loss, next_fence = @next_fence,
  open_count = @open_count, open_units = @open_units, open_topup = @open_topup, open_allowance = @open_allowance,
  period_settled = @period_settled, allowance_spent = @allowance_spent
WHERE account_n = @account_n;

-- name: AccountRoll :exec
-- AccountRoll writes what any transition of units may change, rolls included.
UPDATE accounts SET
  balance = @balance, allowance_balance = @allowance_balance, deposited = @deposited, usage_recorded = @usage_recorded,
  overage_recorded = @overage_recorded, settlement_loss = @settlement_loss, expired = @expired, withdrawn = @withdrawn,
  next_fence = @next_fence, open_count = @open_count, open_units = @open_units, open_topup = @open_topup,
  open_allowance = @open_allowance, period_settled = @period_settled, period_start = @period_start, rolls_at = @rolls_at,
  pending_cut = @pending_cut, allowance_spent = @allowance_spent, epoch = @epoch
WHERE account_n = @account_n;

-- name: AccountSet :exec
-- AccountSet writes everything an administrator changes.
UPDATE accounts SET
  status = @status, status_set_by = @status_set_by,
  balance = @balance, allowance_balance = @allowance_balance, deposited = @deposited, expired = @expired,
  withdrawn = @withdrawn, open_allowance = @open_allowance, period_settled = @period_settled,
  budget_period = @budget_period, allowance = @allowance, period_start = @period_start, rolls_at = @rolls_at,
  pending_cut = @pending_cut, allowance_spent = @allowance_spent, epoch = @epoch,
  requests_per_minute = @requests_per_minute, tokens_per_minute = @tokens_per_minute,
  max_concurrent = @max_concurrent, uncapped = @uncapped
WHERE account_n = @account_n;

-- name: DaySum :one
-- DaySum sums the units billed to an account's days from since on.
SELECT CAST(coalesce(sum(units), 0) AS INTEGER) FROM day_totals WHERE account_n = @account_n AND day >= @since;

-- name: DayLast :one
-- DayLast reads the latest day that an account was billed on, 0 when it never was.
SELECT CAST(coalesce(max(day), 0) AS INTEGER) FROM day_totals WHERE account_n = @account_n;
