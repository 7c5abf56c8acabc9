-- What the check of an exercise looks up. Called by streams/lab/exercise.py.

-- name: rows
-- The reader's rows for some keys, as (key, version, value).
SELECT key, version, value FROM readers.output WHERE reader = :reader AND key = ANY(:keys::text[]);

-- name: progress
-- How far the reader is with some documents, as (document_id, applied version, state, error).
SELECT document_id, applied_version, state, error
FROM readers.progress
WHERE reader = :reader AND document_id = ANY(:document_ids::text[]);

-- name: history_size$
-- The documents that were saved before now.
SELECT count(*) FROM app.documents WHERE deleted_at IS NULL;

-- name: missing_history^
-- A document of those saved before a moment that the reader has no row for, how many there are, and the reader's error.
SELECT d.document_id, count(*) OVER (), p.error
FROM app.documents AS d
LEFT JOIN readers.output AS o ON o.reader = :reader AND o.key = d.document_id
LEFT JOIN readers.progress AS p ON p.reader = :reader AND p.document_id = d.document_id
WHERE d.deleted_at IS NULL AND d.saved_at < :before AND o.version IS NULL
ORDER BY p.error NULLS LAST, d.document_id LIMIT 1;

-- name: now$
SELECT clock_timestamp();

-- name: events^
-- How many events the saves of some documents have sent, and to how many topics.
SELECT count(*), count(DISTINCT topic) FROM app.outbox WHERE message_key = ANY(:document_ids::text[]);
