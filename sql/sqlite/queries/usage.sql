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

-- name: EventPlace :one
-- EventPlace finds the event that comes so many after a position, in (committed_at, request_id) order, up to an end.
SELECT committed_at, request_id FROM usage_events
WHERE account_n = @account_n AND committed_at >= @after_at AND (committed_at > @after_at OR request_id > @after_request)
  AND committed_at <= @to_at AND (committed_at < @to_at OR request_id <= @to_request)
ORDER BY committed_at, request_id LIMIT 1 OFFSET @skip_rows;

-- name: EventSearch :many
-- EventSearch reads an account's events between two positions, the second one included, that match what isn't empty.
SELECT
  request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
  committed_at, lease_id, items
FROM usage_events
WHERE account_n = @account_n AND committed_at >= @after_at AND (committed_at > @after_at OR request_id > @after_request)
  AND committed_at <= @to_at AND (committed_at < @to_at OR request_id <= @to_request)
  AND (length(CAST(@key_id AS BLOB)) = 0 OR key_id = @key_id)
  AND (CAST(@model AS TEXT) = '' OR model = @model)
  AND (CAST(@source AS TEXT) = '' OR source = @source)
ORDER BY committed_at, request_id LIMIT @max_rows;

-- name: EventFold :many
-- EventFold adds up what EventSearch would read, by the fields that are asked for and by time in buckets of so many
-- nanoseconds, 0 for one. A sum that doesn't fit 63 bits is an error.
SELECT
  CAST(CASE WHEN CAST(@by_key AS INTEGER) = 1 THEN e.key_id ELSE zeroblob(16) END AS BLOB) AS by_key,
  CAST(CASE WHEN CAST(@by_model AS INTEGER) = 1 THEN e.model ELSE '' END AS TEXT) AS by_model,
  CAST(CASE WHEN CAST(@by_source AS INTEGER) = 1 THEN e.source ELSE '' END AS TEXT) AS by_source,
  CAST(CASE WHEN CAST(@bucket AS INTEGER) > 0 THEN e.committed_at - e.committed_at % CAST(@bucket AS INTEGER) ELSE 0 END AS INTEGER) AS start_at,
  count(*) AS events,
  CAST(sum(e.units) AS INTEGER) AS units,
  CAST(sum(e.overage_units) AS INTEGER) AS overage_units,
  CAST(sum(e.items) AS INTEGER) AS items,
  CAST(sum(max(e.prompt_tokens, 0)) AS INTEGER) AS prompt_tokens,
  CAST(sum(e.prompt_tokens < 0) AS INTEGER) AS prompt_unreported,
  CAST(sum(max(e.cached_tokens, 0)) AS INTEGER) AS cached_tokens,
  CAST(sum(e.cached_tokens < 0) AS INTEGER) AS cached_unreported,
  CAST(sum(max(e.completion_tokens, 0)) AS INTEGER) AS completion_tokens,
  CAST(sum(e.completion_tokens < 0) AS INTEGER) AS completion_unreported,
  CAST(sum(max(e.reasoning_tokens, 0)) AS INTEGER) AS reasoning_tokens,
  CAST(sum(e.reasoning_tokens < 0) AS INTEGER) AS reasoning_unreported
FROM usage_events AS e
WHERE e.account_n = @account_n AND e.committed_at >= @after_at AND (e.committed_at > @after_at OR e.request_id > @after_request)
  AND e.committed_at <= @to_at AND (e.committed_at < @to_at OR e.request_id <= @to_request)
  AND (length(CAST(@key_id AS BLOB)) = 0 OR e.key_id = @key_id)
  AND (CAST(@model AS TEXT) = '' OR e.model = @model)
  AND (CAST(@source AS TEXT) = '' OR e.source = @source)
GROUP BY 1, 2, 3, 4 LIMIT @max_rows;

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

-- name: DayList :many
-- DayList reads an account's days before the given one, the newest first.
SELECT day, requests, units, overage_units FROM day_totals
WHERE account_n = @account_n AND day < @before ORDER BY day DESC LIMIT @max_rows;

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
