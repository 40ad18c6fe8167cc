-- name: ClaimsRead :many
-- ClaimsRead reads the claims of the given keys; the arrays are parallel. It
-- takes no locks: a claim changes only under the lock of its account. OFFSET 0
-- has each key looked up by the whole of it: joined freely, a plan that was made
-- while the table was young reads all claims of the account.
SELECT c.account_n, c.key_hash, c.format, c.request_id, c.fingerprint
FROM (SELECT unnest(@account_ids::bytea[]) AS account_id, unnest(@key_hashes::bytea[]) AS key_hash, unnest(@formats::text[]) AS format) AS k
CROSS JOIN LATERAL (
  SELECT i.account_n, i.key_hash, i.format, i.request_id, i.fingerprint
  FROM idempotency_claims AS i
  WHERE i.account_n = (SELECT a.account_n FROM accounts AS a WHERE a.account_id = k.account_id)
    AND i.key_hash = k.key_hash AND i.format = k.format
  OFFSET 0
) AS c;

-- name: ClaimsInsert :exec
-- ClaimsInsert adds claims. The arrays are parallel.
INSERT INTO idempotency_claims (account_n, key_hash, format, request_id, fingerprint)
SELECT
  unnest(@account_ns::bigint[]), unnest(@key_hashes::bytea[]), unnest(@formats::text[]),
  unnest(@request_ids::bytea[]), unnest(@fingerprints::bytea[]);

-- name: ClaimsDelete :exec
-- ClaimsDelete frees the keys that the given requests hold.
DELETE FROM idempotency_claims WHERE request_id = ANY(@request_ids::bytea[]);

-- name: AnswersInsert :exec
-- AnswersInsert adds sealed answers. The arrays are parallel.
INSERT INTO sealed_answers (request_id, answer)
SELECT unnest(@request_ids::bytea[]), unnest(@answers::bytea[]);

-- name: AnswerRead :one
SELECT answer FROM sealed_answers WHERE request_id = @request_id;

-- name: AnswersDelete :exec
DELETE FROM sealed_answers WHERE request_id = ANY(@request_ids::bytea[]);

-- name: ClaimsOld :many
-- ClaimsOld locks closed reservations with a claim that are older than the
-- cutoff, the oldest first, and gives the size of their answers. Those of
-- another replica's pass are left out.
SELECT r.request_id, coalesce(octet_length(s.answer), 0)::bigint AS size
FROM reservations AS r
LEFT JOIN sealed_answers AS s ON s.request_id = r.request_id
WHERE r.state <> 0 AND r.claimed = 1 AND r.closed_at < @before_ns
ORDER BY r.closed_at
LIMIT @max_rows::bigint
FOR UPDATE OF r SKIP LOCKED;

-- name: ReservationsUnclaim :exec
-- ReservationsUnclaim says of closed reservations that they have no claim any more.
UPDATE reservations SET claimed = 0 WHERE request_id = ANY(@request_ids::bytea[]);
