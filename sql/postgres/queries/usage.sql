-- name: EventsInsert :exec
-- EventsInsert adds usage events. The arrays are parallel.
INSERT INTO usage_events (
  request_id, account_n, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, committed_at,
  lease_id, items
)
SELECT
  unnest(@request_ids::bytea[]), unnest(@account_ns::bigint[]), unnest(@key_ids::bytea[]), unnest(@sources::text[]), unnest(@outcomes::text[]),
  unnest(@units::bigint[]), unnest(@overages::bigint[]), unnest(@excesses::bigint[]), unnest(@days::bigint[]), unnest(@excess_days::bigint[]),
  unnest(@policy_revisions::bytea[]), unnest(@endpoints::text[]), unnest(@models::text[]),
  unnest(@prompt_tokens::bigint[]), unnest(@cached_tokens::bigint[]), unnest(@completion_tokens::bigint[]), unnest(@reasoning_tokens::bigint[]),
  unnest(@committed_ats::bigint[]), unnest(@lease_ids::bytea[]), unnest(@items::bigint[]);

-- name: DaysAdd :exec
-- DaysAdd adds to day totals; their accounts are locked.
INSERT INTO day_totals AS d (account_n, day, requests, units, overage_units, pruned_units)
SELECT unnest(@account_ns::bigint[]), unnest(@days::bigint[]), unnest(@requests::bigint[]), unnest(@units::bigint[]), unnest(@overages::bigint[]), 0
ON CONFLICT (account_n, day) DO UPDATE SET
  requests = d.requests + excluded.requests, units = d.units + excluded.units, overage_units = d.overage_units + excluded.overage_units;

-- name: EventsPage :many
-- EventsPage reads an account's events in (committed_at, request_id) order after the cursor.
SELECT request_id, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, committed_at,
  lease_id, items
FROM usage_events
WHERE account_n = @account_n::bigint AND (account_n, committed_at, request_id) > (@account_n::bigint, @after_ns::bigint, @after_request::bytea)
ORDER BY committed_at, request_id
LIMIT @max_rows::bigint;

-- name: EventPlace :one
-- EventPlace finds the event that comes so many after a position, in
-- (committed_at, request_id) order, up to an end. Here and below account_n is part
-- of the comparison, so that no plan walks the index on committed_at alone, through
-- the events of others.
SELECT committed_at, request_id
FROM usage_events
WHERE account_n = @account_n::bigint AND (account_n, committed_at, request_id) > (@account_n::bigint, @after_ns::bigint, @after_request::bytea)
  AND (account_n, committed_at, request_id) <= (@account_n::bigint, @to_ns::bigint, @to_request::bytea)
ORDER BY committed_at, request_id
LIMIT 1 OFFSET @skip_rows::bigint;

-- name: EventSearch :many
-- EventSearch reads an account's events between two positions, the second one
-- included, that match what isn't empty.
SELECT request_id, key_id, source, outcome, units, overage_units, excess_units, day, excess_day,
  policy_revision, endpoint, model, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, committed_at,
  lease_id, items
FROM usage_events
WHERE account_n = @account_n::bigint AND (account_n, committed_at, request_id) > (@account_n::bigint, @after_ns::bigint, @after_request::bytea)
  AND (account_n, committed_at, request_id) <= (@account_n::bigint, @to_ns::bigint, @to_request::bytea)
  AND (octet_length(@key_id::bytea) = 0 OR key_id = @key_id::bytea)
  AND (@model::text = '' OR model = @model::text)
  AND (@source::text = '' OR source = @source::text)
ORDER BY committed_at, request_id
LIMIT @max_rows::bigint;

-- name: EventFold :many
-- EventFold adds up what EventSearch would read, by the fields that are asked
-- for and by time in buckets of so many nanoseconds, 0 for one. A sum that
-- doesn't fit 63 bits is an error.
SELECT
  (CASE WHEN @by_key::boolean THEN key_id ELSE '\x00000000000000000000000000000000' END)::bytea AS by_key,
  (CASE WHEN @by_model::boolean THEN model ELSE '' END)::text AS by_model,
  (CASE WHEN @by_source::boolean THEN source ELSE '' END)::text AS by_source,
  (CASE WHEN @bucket::bigint > 0 THEN committed_at - committed_at % @bucket::bigint ELSE 0 END)::bigint AS start_at,
  count(*) AS events,
  sum(units)::bigint AS units,
  sum(overage_units)::bigint AS overage_units,
  sum(items)::bigint AS items,
  sum(greatest(prompt_tokens, 0))::bigint AS prompt_tokens,
  count(*) FILTER (WHERE prompt_tokens < 0) AS prompt_unreported,
  sum(greatest(cached_tokens, 0))::bigint AS cached_tokens,
  count(*) FILTER (WHERE cached_tokens < 0) AS cached_unreported,
  sum(greatest(completion_tokens, 0))::bigint AS completion_tokens,
  count(*) FILTER (WHERE completion_tokens < 0) AS completion_unreported,
  sum(greatest(reasoning_tokens, 0))::bigint AS reasoning_tokens,
  count(*) FILTER (WHERE reasoning_tokens < 0) AS reasoning_unreported
FROM usage_events
WHERE account_n = @account_n::bigint AND (account_n, committed_at, request_id) > (@account_n::bigint, @after_ns::bigint, @after_request::bytea)
  AND (account_n, committed_at, request_id) <= (@account_n::bigint, @to_ns::bigint, @to_request::bytea)
  AND (octet_length(@key_id::bytea) = 0 OR key_id = @key_id::bytea)
  AND (@model::text = '' OR model = @model::text)
  AND (@source::text = '' OR source = @source::text)
GROUP BY 1, 2, 3, 4
LIMIT @max_rows::bigint;

-- name: EventsPrune :one
-- EventsPrune deletes the oldest events and counts their units into the day
-- totals' pruned columns, in one statement, so that the sums stay exact. All
-- overage of an event counts on the day of its grant.
WITH gone AS (
  DELETE FROM usage_events
  WHERE request_id IN (
    SELECT o.request_id FROM usage_events AS o
    WHERE o.committed_at < @before_ns
    ORDER BY o.committed_at
    LIMIT @max_rows::bigint
  )
  RETURNING account_n, day, excess_day, units, excess_units, overage_units
), parts AS (
  SELECT account_n, day, units - excess_units AS units, overage_units FROM gone
  UNION ALL
  SELECT account_n, excess_day, excess_units, 0 FROM gone
), booked AS (
  UPDATE day_totals AS d SET pruned_units = d.pruned_units + p.units, pruned_overage = d.pruned_overage + p.overage_units
  FROM (SELECT account_n, day, sum(units)::bigint AS units, sum(overage_units)::bigint AS overage_units FROM parts GROUP BY account_n, day) AS p
  WHERE d.account_n = p.account_n AND d.day = p.day
  RETURNING d.day
)
SELECT (SELECT count(*) FROM gone)::bigint AS events, (SELECT count(*) FROM booked)::bigint AS days;

-- name: SpendRead :one
-- SpendRead reads what an account spent and holds, beside its own row.
SELECT
  coalesce((SELECT d.units FROM day_totals AS d WHERE d.account_n = @account_n AND d.day = @today), 0)::bigint AS settled_today,
  (coalesce((SELECT sum(r.granted) FROM reservations AS r WHERE r.account_n = @account_n AND r.state = 0 AND r.reserved_at >= @today_ns), 0)
    + coalesce((SELECT sum(l.granted - l.used) FROM leases AS l WHERE l.account_n = @account_n AND l.state = 0 AND l.acquired_at >= @today_ns), 0))::bigint AS open_today,
  (coalesce((SELECT sum(r.granted) FROM reservations AS r WHERE r.account_n = @account_n AND r.state = 0 AND r.reserved_at >= @period_ns), 0)
    + coalesce((SELECT sum(l.granted - l.used) FROM leases AS l WHERE l.account_n = @account_n AND l.state = 0 AND l.acquired_at >= @period_ns), 0))::bigint AS open_period,
  coalesce((SELECT m.requests FROM minutes AS m WHERE m.minute = @minute AND m.account_n = @account_n), 0)::bigint AS requests,
  coalesce((SELECT m.tokens FROM minutes AS m WHERE m.minute = @minute AND m.account_n = @account_n), 0)::bigint AS tokens;

-- name: DaysPage :many
-- DaysPage reads an account's days before the given one, the newest first.
SELECT day, requests, units, overage_units
FROM day_totals
WHERE account_n = @account_n AND day < @before
ORDER BY day DESC
LIMIT @max_rows::bigint;

-- name: SettledSince :one
-- SettledSince sums what was billed to the days from the given one on.
SELECT coalesce(sum(units), 0)::bigint AS units FROM day_totals WHERE account_n = @account_n AND day >= @day;

-- name: DayLast :one
-- DayLast reads the latest day that an account was billed on, 0 when it never was.
SELECT coalesce(max(day), 0)::bigint AS day FROM day_totals WHERE account_n = @account_n;

-- name: OpenSums :many
-- OpenSums recomputes the aggregates over open reservations; the allowance part
-- counts in the account's current epoch only.
SELECT r.account_n, count(*) AS open_count, sum(r.granted)::bigint AS open_units, sum(r.from_topup)::bigint AS open_topup,
  coalesce(sum(r.from_allowance) FILTER (WHERE r.epoch = a.epoch), 0)::bigint AS open_allowance, sum(r.from_overage)::bigint AS open_overage
FROM reservations AS r
JOIN accounts AS a ON a.account_n = r.account_n
WHERE r.state = 0 AND r.account_n = ANY(@account_ns::bigint[])
GROUP BY r.account_n;

-- name: EventSums :many
SELECT account_n, sum(units)::bigint AS units, sum(overage_units)::bigint AS overage_units
FROM usage_events
WHERE account_n = ANY(@account_ns::bigint[])
GROUP BY account_n;

-- name: DaySums :many
-- DaySums recomputes the totals of accounts; the arrays are parallel, the
-- second one is each account's first day of its period.
SELECT d.account_n, sum(d.units)::bigint AS units, sum(d.overage_units)::bigint AS overage_units, sum(d.pruned_units)::bigint AS pruned_units,
  sum(d.pruned_overage)::bigint AS pruned_overage,
  coalesce(sum(d.units) FILTER (WHERE d.day >= k.period_day), 0)::bigint AS period_units
FROM (SELECT unnest(@account_ns::bigint[]) AS account_n, unnest(@period_days::bigint[]) AS period_day) AS k
JOIN day_totals AS d ON d.account_n = k.account_n
WHERE d.account_n = ANY(@account_ns::bigint[]) -- which a plan can look up; the join alone reads them all
GROUP BY d.account_n;
