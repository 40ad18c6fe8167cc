-- name: AccountsLock :many
-- AccountsLock locks the accounts of the given ids in account_n order, which is
-- the order of every transaction that locks accounts. Unknown ids have no row.
SELECT account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class,
  balance, allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled,
  budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch,
  requests_per_minute, tokens_per_minute, max_concurrent, uncapped, created_at
FROM accounts
WHERE account_id = ANY(@account_ids::bytea[])
ORDER BY account_n
FOR UPDATE;

-- name: AccountRead :one
SELECT account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class,
  balance, allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled,
  budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch,
  requests_per_minute, tokens_per_minute, max_concurrent, uncapped, created_at
FROM accounts
WHERE account_id = @account_id;

-- name: AccountReadBySlug :one
SELECT account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class,
  balance, allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled,
  budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch,
  requests_per_minute, tokens_per_minute, max_concurrent, uncapped, created_at
FROM accounts
WHERE slug = @slug;

-- name: AccountsPage :many
-- AccountsPage reads accounts in id order after the given id.
SELECT account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class,
  balance, allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled,
  budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch,
  requests_per_minute, tokens_per_minute, max_concurrent, uncapped, created_at
FROM accounts
WHERE account_id > @after
ORDER BY account_id
LIMIT @max_rows::bigint;

-- name: AccountsByN :many
-- AccountsByN reads the accounts of the given keys, without locks.
SELECT account_n, account_id, slug, display_name, status, status_set_by, origin, capacity_class,
  balance, allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled,
  budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch,
  requests_per_minute, tokens_per_minute, max_concurrent, uncapped, created_at
FROM accounts
WHERE account_n = ANY(@account_ns::bigint[]);

-- name: AccountsDue :many
-- AccountsDue names accounts whose period ended at or before now, the most
-- overdue first, without locks: who rolls one locks it and looks again.
SELECT account_id
FROM accounts
WHERE rolls_at > 0 AND rolls_at <= @now_ns
ORDER BY rolls_at, account_n
LIMIT @max_rows::bigint;

-- name: AccountInsert :one
INSERT INTO accounts (
  account_id, slug, display_name, status, status_set_by, origin, capacity_class,
  balance, allowance_balance, deposited, usage_recorded, overage_recorded, settlement_loss, expired, withdrawn,
  next_fence, open_count, open_units, open_topup, open_allowance, period_settled,
  budget_period, allowance, period_start, rolls_at, pending_cut, allowance_spent, epoch,
  requests_per_minute, tokens_per_minute, max_concurrent, uncapped, created_at
) VALUES (
  @account_id, @slug, @display_name, @status, @status_set_by, @origin, @capacity_class,
  @balance, @allowance_balance, @deposited, 0, 0, 0, 0, 0,
  @next_fence, 0, 0, 0, 0, 0,
  @budget_period, @allowance, @period_start, @rolls_at, @pending_cut, @allowance_spent, @epoch,
  @requests_per_minute, @tokens_per_minute, @max_concurrent, @uncapped, @created_at
)
RETURNING account_n;

-- name: AccountUpdate :exec
-- AccountUpdate writes what administration may change of one locked account.
UPDATE accounts SET
  status = @status, status_set_by = @status_set_by,
  balance = @balance, allowance_balance = @allowance_balance, deposited = @deposited,
  usage_recorded = @usage_recorded, overage_recorded = @overage_recorded, expired = @expired, withdrawn = @withdrawn,
  open_allowance = @open_allowance, period_settled = @period_settled,
  budget_period = @budget_period, allowance = @allowance, period_start = @period_start, rolls_at = @rolls_at,
  pending_cut = @pending_cut, allowance_spent = @allowance_spent, epoch = @epoch,
  requests_per_minute = @requests_per_minute, tokens_per_minute = @tokens_per_minute,
  max_concurrent = @max_concurrent, uncapped = @uncapped
WHERE account_n = @account_n;

-- name: AccountsUpdate :exec
-- AccountsUpdate writes what a group may change of its locked accounts: reserve,
-- settle and roll. The arrays are parallel.
UPDATE accounts AS a SET
  balance = v.balance, allowance_balance = v.allowance_balance, deposited = v.deposited,
  usage_recorded = v.usage_recorded, overage_recorded = v.overage_recorded, settlement_loss = v.settlement_loss, expired = v.expired,
  next_fence = v.next_fence, open_count = v.open_count, open_units = v.open_units,
  open_topup = v.open_topup, open_allowance = v.open_allowance, period_settled = v.period_settled,
  period_start = v.period_start, rolls_at = v.rolls_at, pending_cut = v.pending_cut,
  allowance_spent = v.allowance_spent, epoch = v.epoch
FROM (
  SELECT
    unnest(@account_ns::bigint[]) AS account_n,
    unnest(@balances::bigint[]) AS balance,
    unnest(@allowance_balances::bigint[]) AS allowance_balance,
    unnest(@depositeds::bigint[]) AS deposited,
    unnest(@usages::bigint[]) AS usage_recorded,
    unnest(@overages::bigint[]) AS overage_recorded,
    unnest(@losses::bigint[]) AS settlement_loss,
    unnest(@expireds::bigint[]) AS expired,
    unnest(@next_fences::bigint[]) AS next_fence,
    unnest(@open_counts::bigint[]) AS open_count,
    unnest(@open_units::bigint[]) AS open_units,
    unnest(@open_topups::bigint[]) AS open_topup,
    unnest(@open_allowances::bigint[]) AS open_allowance,
    unnest(@period_settleds::bigint[]) AS period_settled,
    unnest(@period_starts::bigint[]) AS period_start,
    unnest(@rolls_ats::bigint[]) AS rolls_at,
    unnest(@pending_cuts::bigint[]) AS pending_cut,
    unnest(@allowances_spent::bigint[]) AS allowance_spent,
    unnest(@epochs::bigint[]) AS epoch
) AS v
WHERE a.account_n = v.account_n;
