-- name: ReservationsRead :many
-- ReservationsRead reads the reservations of the given ids. It takes no locks:
-- a reservation changes only under the lock of its account.
SELECT request_id, account_n, state, fence, holder_id, key_id, policy_revision,
  granted, from_allowance, from_topup, from_overage, epoch, prompt_units, tokens, prompt_tokens,
  reserved_at, ttl, expires_at, endpoint, model, closed_at, billed, overage, claimed
FROM reservations
WHERE request_id = ANY(@request_ids::bytea[]);

-- name: ReservationsLapsed :many
-- ReservationsLapsed names open reservations that lapsed at or before the
-- cutoff, oldest first, without locks: who sweeps one locks its account and
-- looks again.
SELECT r.request_id, a.account_id
FROM reservations AS r
JOIN accounts AS a ON a.account_n = r.account_n
WHERE r.state = 0 AND r.expires_at > 0 AND r.expires_at <= @cutoff_ns
ORDER BY r.expires_at, r.request_id
LIMIT @max_rows::bigint;

-- name: LapsedCount :many
-- LapsedCount counts open reservations that have lapsed, for the given accounts.
SELECT account_n, count(*) AS lapsed
FROM reservations
WHERE state = 0 AND expires_at <= @now_ns AND account_n = ANY(@account_ns::bigint[])
GROUP BY account_n;

-- name: ReservationsInsert :exec
-- ReservationsInsert adds rows in their final state. The arrays are parallel.
INSERT INTO reservations (
  request_id, account_n, state, fence, holder_id, key_id, policy_revision,
  granted, from_allowance, from_topup, from_overage, epoch, prompt_units, tokens, prompt_tokens,
  reserved_at, ttl, expires_at, endpoint, model, closed_at, billed, overage, claimed
)
SELECT
  unnest(@request_ids::bytea[]), unnest(@account_ns::bigint[]), unnest(@states::bigint[]), unnest(@fences::bigint[]),
  unnest(@holder_ids::bytea[]), unnest(@key_ids::bytea[]), unnest(@policy_revisions::bytea[]),
  unnest(@granteds::bigint[]), unnest(@from_allowances::bigint[]), unnest(@from_topups::bigint[]), unnest(@from_overages::bigint[]),
  unnest(@epochs::bigint[]), unnest(@prompt_units::bigint[]), unnest(@tokens::bigint[]), unnest(@prompt_tokens::bigint[]),
  unnest(@reserved_ats::bigint[]), unnest(@ttls::bigint[]), unnest(@expires_ats::bigint[]),
  unnest(@endpoints::text[]), unnest(@models::text[]),
  unnest(@closed_ats::bigint[]), unnest(@billeds::bigint[]), unnest(@overages::bigint[]), unnest(@claimeds::bigint[]);

-- name: ReservationsUpdate :exec
-- ReservationsUpdate writes what a close or a renewal changes.
UPDATE reservations AS r SET
  state = v.state, ttl = v.ttl, expires_at = v.expires_at, closed_at = v.closed_at, billed = v.billed, overage = v.overage,
  claimed = v.claimed
FROM (
  SELECT
    unnest(@request_ids::bytea[]) AS request_id,
    unnest(@states::bigint[]) AS state,
    unnest(@ttls::bigint[]) AS ttl,
    unnest(@expires_ats::bigint[]) AS expires_at,
    unnest(@closed_ats::bigint[]) AS closed_at,
    unnest(@billeds::bigint[]) AS billed,
    unnest(@overages::bigint[]) AS overage,
    unnest(@claimeds::bigint[]) AS claimed
) AS v
WHERE r.request_id = v.request_id;

-- name: ReservationsPrune :execrows
-- ReservationsPrune deletes closed reservations without a claim, tombstones too, the oldest
-- first.
DELETE FROM reservations
WHERE request_id IN (
  SELECT c.request_id FROM reservations AS c
  WHERE c.state <> 0 AND c.claimed = 0 AND c.closed_at < @before_ns
  ORDER BY c.closed_at
  LIMIT @max_rows::bigint
);

-- name: MinutesRead :many
-- MinutesRead reads the given (minute, account) rows; the arrays are parallel.
SELECT m.minute, m.account_n, m.requests, m.tokens
FROM (SELECT unnest(@minutes::bigint[]) AS minute, unnest(@account_ns::bigint[]) AS account_n) AS k
JOIN minutes AS m ON m.minute = k.minute AND m.account_n = k.account_n;

-- name: MinutesUpsert :exec
-- MinutesUpsert writes rows' new numbers; their accounts are locked.
INSERT INTO minutes (minute, account_n, requests, tokens)
SELECT unnest(@minutes::bigint[]), unnest(@account_ns::bigint[]), unnest(@requests::bigint[]), unnest(@tokens::bigint[])
ON CONFLICT (minute, account_n) DO UPDATE SET requests = excluded.requests, tokens = excluded.tokens;

-- name: MinutesPrune :execrows
DELETE FROM minutes
WHERE (minute, account_n) IN (
  SELECT o.minute, o.account_n FROM minutes AS o
  WHERE o.minute < @before_minute
  ORDER BY o.minute, o.account_n
  LIMIT @max_rows::bigint
);

-- name: SweepLock :one
-- SweepLock reads a sweep's memory and keeps other replicas' passes out.
SELECT last_success, waits_until FROM sweeps WHERE name = @name FOR UPDATE;

-- name: SweepUpsert :exec
INSERT INTO sweeps (name, last_success, waits_until) VALUES (@name, @last_success, @waits_until)
ON CONFLICT (name) DO UPDATE SET last_success = excluded.last_success, waits_until = excluded.waits_until;
