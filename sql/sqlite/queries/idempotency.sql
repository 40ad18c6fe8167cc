-- name: ClaimsLoad :many
-- ClaimsLoad reads the claims of a JSON array of [account_n, key hash in hex, format] triples.
SELECT c.account_n, c.key_hash, c.format, c.request_id, c.fingerprint
FROM json_each(CAST(@claims AS TEXT)) AS j
JOIN idempotency_claims AS c ON c.account_n = json_extract(j.value, '$[0]')
  AND c.key_hash = unhex(json_extract(j.value, '$[1]')) AND c.format = json_extract(j.value, '$[2]');

-- name: ClaimInsert :exec
INSERT INTO idempotency_claims (account_n, key_hash, format, request_id, fingerprint)
VALUES (@account_n, @key_hash, @format, @request_id, @fingerprint);

-- name: ClaimDelete :exec
-- ClaimDelete frees the key that a request holds.
DELETE FROM idempotency_claims WHERE request_id = @request_id;

-- name: AnswerInsert :exec
INSERT INTO sealed_answers (request_id, answer) VALUES (@request_id, @answer);

-- name: AnswerFind :one
SELECT answer FROM sealed_answers WHERE request_id = @request_id;

-- name: ClaimsOld :many
-- ClaimsOld names closed reservations with a claim that are older than the cutoff, the oldest first, and the size of their answers.
SELECT r.request_id, CAST(coalesce(length(s.answer), 0) AS INTEGER) AS size
FROM reservations AS r
LEFT JOIN sealed_answers AS s ON s.request_id = r.request_id
WHERE r.state <> 0 AND r.claimed = 1 AND r.closed_at < @cutoff ORDER BY r.closed_at LIMIT @max_rows;

-- name: ClaimsDelete :exec
-- ClaimsDelete deletes the claims of a JSON array of request ids in hex.
DELETE FROM idempotency_claims WHERE request_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: AnswersDelete :exec
-- AnswersDelete deletes the answers of a JSON array of request ids in hex.
DELETE FROM sealed_answers WHERE request_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: ReservationsUnclaim :exec
-- ReservationsUnclaim says of a JSON array of request ids in hex that they have no claim any more.
UPDATE reservations SET claimed = 0 WHERE request_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);
