-- name: LeasesLoad :many
-- LeasesLoad reads the leases of a JSON array of ids in hex.
SELECT
  lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until
FROM leases
WHERE lease_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: LeasesLoadAcquired :many
-- LeasesLoadAcquired is LeasesLoad by the ids of the attempts.
SELECT
  lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until
FROM leases
WHERE acquire_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: LeasesDue :many
-- LeasesDue reads active leases that expired at or before the cutoff, the oldest expiry first.
SELECT
  lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until
FROM leases
WHERE state = 0 AND expires_at <= @cutoff ORDER BY expires_at, account_n LIMIT @max_rows;

-- name: LeaseAccount :one
-- LeaseAccount names the account of a lease, which never changes.
SELECT a.account_id FROM leases AS l JOIN accounts AS a ON a.account_n = l.account_n WHERE l.lease_id = @lease_id;

-- name: LeaseInsert :exec
INSERT INTO leases (
  lease_id, acquire_id, account_n, state, fence, granted, from_allowance, from_topup, epoch, used, credited, expired,
  loss, acquired_at, expires_at, ended_at, evidence_remaining, evidence_until
) VALUES (
  @lease_id, @acquire_id, @account_n, @state, @fence, @granted, @from_allowance, @from_topup, @epoch, @used, @credited,
  @expired, @loss, @acquired_at, @expires_at, @ended_at, @evidence_remaining, @evidence_until
);

-- name: LeaseUse :exec
-- LeaseUse writes what was billed to a lease, which no index has.
UPDATE leases SET used = @used WHERE lease_id = @lease_id;

-- name: LeaseUpdate :exec
-- LeaseUpdate writes what use, an extension or the end of a lease changes.
UPDATE leases SET
  state = @state, used = @used, credited = @credited, expired = @expired, loss = @loss, expires_at = @expires_at,
  ended_at = @ended_at
WHERE lease_id = @lease_id;

-- name: LeasesPrune :execrows
-- LeasesPrune deletes ended leases without loss that are older than the cutoff, the oldest first.
DELETE FROM leases WHERE lease_id IN (
  SELECT l.lease_id FROM leases AS l WHERE l.state <> 0 AND l.loss = 0 AND l.ended_at < @cutoff ORDER BY l.ended_at LIMIT @max_rows
);

-- name: LeasesHeldSum :one
-- LeasesHeldSum sums an account's active leases, the allowance part only of the given epoch, and the loss of ended ones.
SELECT
  CAST(coalesce(sum(CASE WHEN state = 0 THEN granted ELSE 0 END), 0) AS INTEGER) AS granted,
  CAST(coalesce(sum(CASE WHEN state = 0 THEN used ELSE 0 END), 0) AS INTEGER) AS used,
  CAST(coalesce(sum(CASE WHEN state = 0 THEN min(granted - used, from_topup) ELSE 0 END), 0) AS INTEGER) AS topup,
  CAST(coalesce(sum(CASE WHEN state = 0 AND epoch = @epoch THEN max(from_allowance - used, 0) ELSE 0 END), 0) AS INTEGER) AS allowance,
  CAST(coalesce(sum(loss), 0) AS INTEGER) AS loss
FROM leases WHERE account_n = @account_n AND (state = 0 OR loss > 0);

-- name: LeasesHeldSince :one
-- LeasesHeldSince sums what an account's active leases granted at or after two instants hold unspent.
SELECT
  CAST(coalesce(sum(CASE WHEN acquired_at >= @since_day THEN granted - used ELSE 0 END), 0) AS INTEGER) AS today,
  CAST(coalesce(sum(CASE WHEN acquired_at >= @since_period THEN granted - used ELSE 0 END), 0) AS INTEGER) AS period
FROM leases WHERE account_n = @account_n AND state = 0;

-- name: EventsKnown :many
-- EventsKnown reads which of a JSON array of request ids in hex have an event, and its source.
SELECT request_id, source FROM usage_events
WHERE request_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);
