-- name: RevisionRead :one
-- RevisionRead reads the revision shared by keys and snapshots.
SELECT value FROM revisions WHERE one = 1;
