-- name: ClockRead :one
-- ClockRead reads the database's clock in unix nanoseconds, at its microsecond
-- precision: replicas with skewed clocks agree on midnights and lapses.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint AS now_ns;

-- name: SessionDurable :one
-- SessionDurable makes a commit of this session durable, whatever the server's default.
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false) AS setting;

-- name: TransactionBegin :exec
BEGIN;

-- name: TransactionCommit :exec
COMMIT;

-- name: TransactionRollback :exec
ROLLBACK;
