-- name: LeasesRead :many
-- LeasesRead reads leases by their ids or by the ids of the attempts that made
-- them. It takes no locks: a lease changes only under the lock of its account.
SELECT lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until
FROM leases
WHERE lease_id = ANY(@lease_ids::bytea[]) OR acquire_id = ANY(@acquire_ids::bytea[]);

-- name: LeasesDue :many
-- LeasesDue names active leases that expired at or before the cutoff, oldest
-- first, without locks: who reclaims one locks its account and looks again.
SELECT l.lease_id, a.account_id
FROM leases AS l
JOIN accounts AS a ON a.account_n = l.account_n
WHERE l.state = 0 AND l.expires_at <= @cutoff_ns
ORDER BY l.expires_at, l.account_n
LIMIT @max_rows::bigint;

-- name: LeaseAccount :one
-- LeaseAccount names the account of a lease, which never changes.
SELECT a.account_id FROM leases AS l JOIN accounts AS a ON a.account_n = l.account_n WHERE l.lease_id = @lease_id;

-- name: LeasesInsert :exec
-- LeasesInsert adds rows in their final state. The arrays are parallel.
INSERT INTO leases (
  lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until
)
SELECT
  unnest(@lease_ids::bytea[]), unnest(@acquire_ids::bytea[]), unnest(@account_ns::bigint[]), unnest(@states::bigint[]), unnest(@fences::bigint[]),
  unnest(@granteds::bigint[]), unnest(@from_allowances::bigint[]), unnest(@from_topups::bigint[]), unnest(@epochs::bigint[]),
  unnest(@useds::bigint[]), unnest(@crediteds::bigint[]), unnest(@expireds::bigint[]), unnest(@losses::bigint[]),
  unnest(@acquired_ats::bigint[]), unnest(@expires_ats::bigint[]), unnest(@ended_ats::bigint[]),
  unnest(@evidence_remainings::bigint[]), unnest(@evidence_untils::bigint[]);

-- name: LeasesUpdate :exec
-- LeasesUpdate writes what use, an extension or the end of a lease changes.
UPDATE leases AS l SET
  state = v.state, used = v.used, credited = v.credited, expired = v.expired, loss = v.loss, expires_at = v.expires_at, ended_at = v.ended_at
FROM (
  SELECT
    unnest(@lease_ids::bytea[]) AS lease_id,
    unnest(@states::bigint[]) AS state,
    unnest(@useds::bigint[]) AS used,
    unnest(@crediteds::bigint[]) AS credited,
    unnest(@expireds::bigint[]) AS expired,
    unnest(@losses::bigint[]) AS loss,
    unnest(@expires_ats::bigint[]) AS expires_at,
    unnest(@ended_ats::bigint[]) AS ended_at
) AS v
WHERE l.lease_id = v.lease_id;

-- name: LeasesPrune :execrows
-- LeasesPrune deletes ended leases that left no loss, the oldest first.
DELETE FROM leases
WHERE lease_id IN (
  SELECT c.lease_id FROM leases AS c
  WHERE c.state <> 0 AND c.loss = 0 AND c.ended_at < @before_ns
  ORDER BY c.ended_at
  LIMIT @max_rows::bigint
);

-- name: LeaseSums :many
-- LeaseSums sums what accounts' active leases hold, the allowance part in the
-- account's current epoch only, and the loss of ended ones.
SELECT l.account_n,
  coalesce(sum(l.granted) FILTER (WHERE l.state = 0), 0)::bigint AS granted,
  coalesce(sum(l.used) FILTER (WHERE l.state = 0), 0)::bigint AS used,
  coalesce(sum(least(l.granted - l.used, l.from_topup)) FILTER (WHERE l.state = 0), 0)::bigint AS topup,
  coalesce(sum(greatest(l.from_allowance - l.used, 0)) FILTER (WHERE l.state = 0 AND l.epoch = a.epoch), 0)::bigint AS allowance,
  sum(l.loss)::bigint AS loss
FROM leases AS l
JOIN accounts AS a ON a.account_n = l.account_n
WHERE (l.state = 0 OR l.loss > 0) AND l.account_n = ANY(@account_ns::bigint[])
GROUP BY l.account_n;

-- name: EventsKnown :many
-- EventsKnown reads which of the requests have an event, and its source.
SELECT request_id, source FROM usage_events WHERE request_id = ANY(@request_ids::bytea[]);
