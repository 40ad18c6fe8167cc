-- name: ReservationsLoad :many
-- ReservationsLoad reads the reservations of a JSON array of request ids in hex.
SELECT
  request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance, from_topup,
  from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model,
  closed_at, billed, overage, claimed
FROM reservations
WHERE request_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: ReservationsLapsed :many
-- ReservationsLapsed reads open reservations that lapsed at now, the oldest lapse first.
SELECT
  request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance, from_topup,
  from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model,
  closed_at, billed, overage, claimed
FROM reservations
WHERE state = 0 AND expires_at > 0 AND expires_at <= @now ORDER BY expires_at, request_id LIMIT @max_rows;

-- name: ReservationsLapsedCount :many
-- ReservationsLapsedCount counts the lapsed open reservations of accounts named by a JSON array of integer keys.
SELECT account_n, count(*) AS lapsed FROM reservations
WHERE state = 0 AND expires_at <= @now AND account_n IN (SELECT j.value FROM json_each(CAST(@ns AS TEXT)) AS j)
GROUP BY account_n;

-- name: ReservationInsert :exec
INSERT INTO reservations (
  request_id, account_n, state, fence, holder_id, key_id, policy_revision, granted, from_allowance, from_topup,
  from_overage, epoch, prompt_units, tokens, prompt_tokens, reserved_at, ttl, expires_at, endpoint, model,
  closed_at, billed, overage, claimed
) VALUES (
  @request_id, @account_n, @state, @fence, @holder_id, @key_id, @policy_revision, @granted, @from_allowance,
  @from_topup, @from_overage, @epoch, @prompt_units, @tokens, @prompt_tokens, @reserved_at, @ttl, @expires_at,
  @endpoint, @model, @closed_at, @billed, @overage, @claimed
);

-- name: ReservationUpdate :exec
-- ReservationUpdate writes a renewal or the end of a reservation that is still open.
UPDATE reservations SET
  state = @state, ttl = @ttl, expires_at = @expires_at, closed_at = @closed_at, billed = @billed, overage = @overage,
  claimed = @claimed
WHERE request_id = @request_id AND state = 0;

-- name: ReservationsPrune :execrows
-- ReservationsPrune deletes closed reservations without a claim that are older than the cutoff, the oldest first.
DELETE FROM reservations WHERE request_id IN (
  SELECT r.request_id FROM reservations AS r WHERE r.state <> 0 AND r.claimed = 0 AND r.closed_at < @cutoff ORDER BY r.closed_at LIMIT @max_rows
);

-- name: ReservationsOpenSum :one
-- ReservationsOpenSum sums an account's open reservations; the allowance part only of the given epoch.
SELECT count(*) AS open_count,
  CAST(coalesce(sum(granted), 0) AS INTEGER) AS units,
  CAST(coalesce(sum(from_topup), 0) AS INTEGER) AS topup,
  CAST(coalesce(sum(CASE WHEN epoch = @epoch THEN from_allowance ELSE 0 END), 0) AS INTEGER) AS allowance,
  CAST(coalesce(sum(from_overage), 0) AS INTEGER) AS overage
FROM reservations WHERE state = 0 AND account_n = @account_n;

-- name: ReservationsOpenSince :one
-- ReservationsOpenSince sums the grants of an account's open reservations made at or after two instants.
SELECT
  CAST(coalesce(sum(CASE WHEN reserved_at >= @since_day THEN granted ELSE 0 END), 0) AS INTEGER) AS today,
  CAST(coalesce(sum(CASE WHEN reserved_at >= @since_period THEN granted ELSE 0 END), 0) AS INTEGER) AS period
FROM reservations WHERE state = 0 AND account_n = @account_n;
