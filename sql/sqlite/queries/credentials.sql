-- name: KeysLoad :many
-- KeysLoad reads what Reserve checks of the keys of a JSON array of ids in hex.
SELECT key_id, account_n, not_after, revoked_at FROM keys
WHERE key_id IN (SELECT unhex(j.value) FROM json_each(CAST(@ids AS TEXT)) AS j);

-- name: KeyFind :one
SELECT k.key_id, k.name, a.account_id, k.principal, k.digest, k.origin, k.not_after, k.revoked_at, k.revoked_by, k.revision
FROM keys AS k JOIN accounts AS a ON a.account_n = k.account_n WHERE k.key_id = @key_id;

-- name: KeyHolder :one
-- KeyHolder finds the live key that has a principal.
SELECT key_id FROM keys WHERE principal = @principal AND revoked_at = 0;

-- name: KeyNamed :one
SELECT key_id FROM keys WHERE account_n = @account_n AND name = @name;

-- name: KeyList :many
-- KeyList reads a page of the keys that are neither revoked nor expired at now, in id order.
SELECT k.key_id, k.name, a.account_id, k.principal, k.digest, k.origin, k.not_after, k.revoked_at, k.revoked_by, k.revision
FROM keys AS k JOIN accounts AS a ON a.account_n = k.account_n
WHERE k.key_id > @after AND k.revoked_at = 0 AND (k.not_after = 0 OR k.not_after > @now)
ORDER BY k.key_id LIMIT @max_rows;

-- name: KeyListAccount :many
-- KeyListAccount reads an account's keys, revoked ones too, in id order, each with its last use, 0 for none.
SELECT k.key_id, k.name, a.account_id, k.principal, k.digest, k.origin, k.not_after, k.revoked_at, k.revoked_by, k.revision,
  CAST(coalesce(u.last_committed_at, 0) AS INTEGER) AS last_committed_at
FROM keys AS k JOIN accounts AS a ON a.account_n = k.account_n
LEFT JOIN key_activity AS u ON u.key_id = k.key_id
WHERE k.account_n = @account_n ORDER BY k.key_id LIMIT @max_rows;

-- name: KeyUsed :exec
-- KeyUsed stores a use of a key of the account. A key that the account doesn't have has none, and no use becomes older.
INSERT INTO key_activity (key_id, last_committed_at)
SELECT k.key_id, CAST(@committed_at AS INTEGER) FROM keys AS k WHERE k.key_id = @key_id AND k.account_n = @account_n
ON CONFLICT (key_id) DO UPDATE SET last_committed_at = max(key_activity.last_committed_at, excluded.last_committed_at);

-- name: KeyInsert :exec
INSERT INTO keys (key_id, account_n, name, principal, digest, origin, not_after, revoked_at, revoked_by, revision, created_at)
VALUES (@key_id, @account_n, @name, @principal, @digest, @origin, @not_after, 0, '', @revision, @created_at);

-- name: KeyUpdate :exec
UPDATE keys SET principal = @principal, digest = @digest, origin = @origin, not_after = @not_after,
  revoked_at = @revoked_at, revoked_by = @revoked_by, revision = @revision
WHERE key_id = @key_id;

-- name: RevisionRead :one
-- RevisionRead reads the revision shared by keys and snapshots.
SELECT value FROM revisions WHERE one = 1;

-- name: RevisionNext :one
-- RevisionNext advances it; in one transaction with what it numbers, it is gapless in commit order.
UPDATE revisions SET value = value + 1 WHERE one = 1 RETURNING value;

-- name: SnapshotFind :one
SELECT s.principal, s.generation, s.revision, s.account_n, s.key_id, s.tombstone, s.document
FROM snapshots AS s WHERE s.principal = @principal;

-- name: SnapshotList :many
-- SnapshotList reads a page in principal order, tombstones included.
SELECT s.principal, s.generation, s.revision, s.account_n, s.key_id, s.tombstone, s.document
FROM snapshots AS s WHERE s.principal > @after ORDER BY s.principal LIMIT @max_rows;

-- name: SnapshotListAccount :many
-- SnapshotListAccount reads a page of an account's live snapshots in principal order.
SELECT s.principal, s.generation, s.revision, s.account_n, s.key_id, s.tombstone, s.document
FROM snapshots AS s WHERE s.account_n = @account_n AND s.tombstone = 0 AND s.principal > @after
ORDER BY s.principal LIMIT @max_rows;

-- name: SnapshotWrite :execrows
-- SnapshotWrite stores a generation; the guard refuses one that isn't newer than what is there.
INSERT INTO snapshots (principal, generation, revision, account_n, key_id, tombstone, document)
VALUES (@principal, @generation, @revision, @account_n, @key_id, @tombstone, @document)
ON CONFLICT (principal) DO UPDATE SET
  generation = excluded.generation, revision = excluded.revision, account_n = excluded.account_n,
  key_id = excluded.key_id, tombstone = excluded.tombstone, document = excluded.document
WHERE snapshots.generation < excluded.generation;

-- name: PolicyFind :one
SELECT body FROM policies WHERE revision = @revision;

-- name: PolicyInsert :execrows
INSERT INTO policies (revision, body, created_at) VALUES (@revision, @body, @created_at) ON CONFLICT (revision) DO NOTHING;
