-- name: EventInsert :exec
INSERT INTO usage_events (
  request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
  committed_at, lease_id, items
) VALUES (
  @request_id, @account_n, @key_id, @source, @outcome, @units, @overage_units, @excess_units, @day,
  @excess_day, @policy_revision, @endpoint, @model, @prompt_tokens, @cached_tokens, @completion_tokens,
  @reasoning_tokens, @committed_at, @lease_id, @items
);

-- name: EventList :many
-- EventList reads an account's events in (committed_at, request_id) order after a position.
SELECT
  request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
  committed_at, lease_id, items
FROM usage_events
WHERE account_n = @account_n AND committed_at >= @after_at AND (committed_at > @after_at OR request_id > @after_request)
ORDER BY committed_at, request_id LIMIT @max_rows;

-- name: EventListOld :many
-- EventListOld reads what pruning has to book before it deletes: the oldest events before the cutoff.
SELECT request_id, account_n, units, overage_units, excess_units, day, excess_day
FROM usage_events WHERE committed_at < @cutoff ORDER BY committed_at LIMIT @max_rows;

-- name: EventsDelete :execrows
-- EventsDelete deletes the events of a JSON array of request ids in hex.
DELETE FROM usage_events WHERE request_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: EventSum :one
SELECT CAST(coalesce(sum(units), 0) AS INTEGER) AS units, CAST(coalesce(sum(overage_units), 0) AS INTEGER) AS overage
FROM usage_events WHERE account_n = @account_n;

-- name: DayAdd :exec
-- DayAdd adds a group's units to one day of an account.
INSERT INTO day_totals (account_n, day, requests, units, overage_units, pruned_units)
VALUES (@account_n, @day, @requests, @units, @overage_units, 0)
ON CONFLICT (account_n, day) DO UPDATE SET
  requests = day_totals.requests + excluded.requests,
  units = day_totals.units + excluded.units,
  overage_units = day_totals.overage_units + excluded.overage_units;

-- name: DayPrune :execrows
-- DayPrune books that events of one day, worth these units, were deleted.
UPDATE day_totals SET pruned_units = pruned_units + @units, pruned_overage = pruned_overage + @overage
WHERE account_n = @account_n AND day = @day;

-- name: DayFind :one
SELECT requests, units, overage_units FROM day_totals WHERE account_n = @account_n AND day = @day;

-- name: DaysSum :one
-- DaysSum sums all days of an account, and those from since on.
SELECT CAST(coalesce(sum(units), 0) AS INTEGER) AS units,
  CAST(coalesce(sum(overage_units), 0) AS INTEGER) AS overage,
  CAST(coalesce(sum(pruned_units), 0) AS INTEGER) AS pruned,
  CAST(coalesce(sum(pruned_overage), 0) AS INTEGER) AS pruned_overage,
  CAST(coalesce(sum(CASE WHEN day >= @since THEN units ELSE 0 END), 0) AS INTEGER) AS since_units
FROM day_totals WHERE account_n = @account_n;

-- name: MinutesLoad :many
-- MinutesLoad reads the minute rows of a JSON array of [minute, account_n] pairs.
SELECT m.minute, m.account_n, m.requests, m.tokens
FROM json_each(CAST(@pairs AS TEXT)) AS j
JOIN minutes AS m ON m.minute = json_extract(j.value, '$[0]') AND m.account_n = json_extract(j.value, '$[1]');

-- name: MinuteFind :one
SELECT requests, tokens FROM minutes WHERE minute = @minute AND account_n = @account_n;

-- name: MinuteWrite :exec
-- MinuteWrite stores the new numbers of one minute of an account.
INSERT INTO minutes (minute, account_n, requests, tokens) VALUES (@minute, @account_n, @requests, @tokens)
ON CONFLICT (minute, account_n) DO UPDATE SET requests = excluded.requests, tokens = excluded.tokens;

-- name: MinutesPrune :execrows
-- MinutesPrune deletes counters of minutes before the given one, the oldest first.
DELETE FROM minutes WHERE (minute, account_n) IN (
  SELECT m.minute, m.account_n FROM minutes AS m WHERE m.minute < @minute ORDER BY m.minute LIMIT @max_rows
);

-- name: SweepFind :one
SELECT last_success, waits_until FROM sweeps WHERE name = @name;

-- name: SweepWrite :exec
INSERT INTO sweeps (name, last_success, waits_until) VALUES (@name, @last_success, @waits_until)
ON CONFLICT (name) DO UPDATE SET last_success = excluded.last_success, waits_until = excluded.waits_until;

-- name: AuditInsert :exec
INSERT INTO audit (recorded_at, actor, authority, operation, action, account_id, subject, reason, state_before, state_after)
VALUES (@recorded_at, @actor, @authority, @operation, @action, @account_id, @subject, @reason, @state_before, @state_after);
