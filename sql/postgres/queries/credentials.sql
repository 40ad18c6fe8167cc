-- name: KeysForReserve :many
-- KeysForReserve reads what Reserve needs of its keys. It takes no locks: a
-- revocation that commits later comes later.
SELECT key_id, account_n, not_after, revoked_at
FROM keys
WHERE key_id = ANY(@key_ids::bytea[]);

-- name: KeyLock :one
SELECT k.key_id, k.account_n, a.account_id, k.name, k.principal, k.digest, k.origin, k.not_after, k.revoked_at, k.revoked_by, k.revision
FROM keys AS k
JOIN accounts AS a ON a.account_n = k.account_n
WHERE k.key_id = @key_id
FOR UPDATE OF k;

-- name: KeyAccount :one
-- KeyAccount names the account of a key; it never changes.
SELECT a.account_id FROM keys AS k JOIN accounts AS a ON a.account_n = k.account_n WHERE k.key_id = @key_id;

-- name: KeyInsert :exec
INSERT INTO keys (key_id, account_n, name, principal, digest, origin, not_after, revoked_at, revoked_by, revision, created_at)
VALUES (@key_id, @account_n, @name, @principal, @digest, @origin, @not_after, @revoked_at, @revoked_by, @revision, @created_at);

-- name: KeyUpdate :exec
UPDATE keys SET
  name = @name, principal = @principal, digest = @digest, origin = @origin,
  not_after = @not_after, revoked_at = @revoked_at, revoked_by = @revoked_by
WHERE key_id = @key_id;

-- name: KeyStamp :exec
-- KeyStamp gives a changed key its revision.
UPDATE keys SET revision = @revision WHERE key_id = @key_id;

-- name: KeysLivePage :many
-- KeysLivePage reads live keys in id order after the given id.
SELECT k.key_id, a.account_id, k.name, k.principal, k.digest, k.origin, k.not_after, k.revoked_at, k.revoked_by, k.revision
FROM keys AS k
JOIN accounts AS a ON a.account_n = k.account_n
WHERE k.revoked_at = 0 AND (k.not_after = 0 OR k.not_after > @now_ns) AND k.key_id > @after
ORDER BY k.key_id
LIMIT @max_rows::bigint;

-- name: KeysOfAccount :many
-- KeysOfAccount reads an account's keys in id order, revoked ones too, each with
-- its last use, 0 for none.
SELECT k.key_id, k.name, k.principal, k.digest, k.origin, k.not_after, k.revoked_at, k.revoked_by, k.revision,
  coalesce(u.last_committed_at, 0)::bigint AS last_committed_at
FROM keys AS k
LEFT JOIN key_activity AS u ON u.key_id = k.key_id
WHERE k.account_n = @account_n
ORDER BY k.key_id
LIMIT @max_rows::bigint;

-- name: KeysUsed :exec
-- KeysUsed stores uses of keys of locked accounts; the arrays are parallel. A key
-- that its account doesn't have has none, and no use becomes older.
INSERT INTO key_activity AS u (key_id, last_committed_at)
SELECT k.key_id, v.committed_at
FROM (
  SELECT
    unnest(@key_ids::bytea[]) AS key_id,
    unnest(@account_ns::bigint[]) AS account_n,
    unnest(@committed_ats::bigint[]) AS committed_at
) AS v
JOIN keys AS k ON k.key_id = v.key_id AND k.account_n = v.account_n
ON CONFLICT (key_id) DO UPDATE SET last_committed_at = greatest(u.last_committed_at, excluded.last_committed_at);

-- name: RevisionRead :one
SELECT value FROM revisions WHERE one = 1;

-- name: RevisionAdvance :one
-- RevisionAdvance is the last lock of a transaction: revisions are gapless in
-- commit order.
UPDATE revisions SET value = value + 1 WHERE one = 1 RETURNING value;

-- name: ChangeNotify :exec
-- ChangeNotify tells the listeners at commit.
SELECT pg_notify('tollgate_changes', @payload::text);

-- name: ChangeListen :exec
LISTEN tollgate_changes;

-- name: SnapshotRead :one
SELECT principal, generation, revision, account_n, key_id, tombstone, document
FROM snapshots
WHERE principal = @principal;

-- name: SnapshotsPage :many
-- SnapshotsPage reads snapshots in principal order, tombstones included.
SELECT principal, generation, revision, account_n, key_id, tombstone, document
FROM snapshots
WHERE principal > @after
ORDER BY principal
LIMIT @max_rows::bigint;

-- name: SnapshotLock :one
SELECT principal, generation, account_n, key_id, tombstone, document
FROM snapshots
WHERE principal = @principal
FOR UPDATE;

-- name: SnapshotsOfAccountLock :many
-- SnapshotsOfAccountLock locks an account's live snapshots in principal order.
SELECT principal, generation, document
FROM snapshots
WHERE account_n = @account_n AND tombstone = 0 AND principal > @after
ORDER BY principal
LIMIT @max_rows::bigint
FOR UPDATE;

-- name: SnapshotUpsert :execrows
-- SnapshotUpsert stores a document or a tombstone at its generation, never an
-- earlier one than the stored.
INSERT INTO snapshots AS s (principal, generation, revision, account_n, key_id, tombstone, document)
VALUES (@principal, @generation, 1, @account_n, @key_id, @tombstone, @document)
ON CONFLICT (principal) DO UPDATE SET
  generation = excluded.generation, revision = excluded.revision, account_n = excluded.account_n, key_id = excluded.key_id,
  tombstone = excluded.tombstone, document = excluded.document
WHERE s.generation < excluded.generation;

-- name: SnapshotsStamp :exec
-- SnapshotsStamp gives changed snapshots their revision.
UPDATE snapshots SET revision = @revision WHERE principal = ANY(@principals::bytea[]);

-- name: PolicyInsert :execrows
INSERT INTO policies (revision, body, created_at) VALUES (@revision, @body, @created_at)
ON CONFLICT (revision) DO NOTHING;

-- name: PolicyRead :one
SELECT body FROM policies WHERE revision = @revision;

-- name: AuditInsert :exec
INSERT INTO audit (recorded_at, actor, authority, operation, action, account_id, subject, reason, state_before, state_after)
VALUES (@recorded_at, @actor, @authority, @operation, @action, @account_id, @subject, @reason, @state_before, @state_after);

-- name: TombstonesStamp :exec
-- TombstonesStamp gives the tombstones a key's change left the key's revision.
UPDATE snapshots SET revision = @revision WHERE principal = ANY(@principals::bytea[]) AND tombstone = 1 AND revision = 1;
