-- Re-scoring: runs, their chunks and errors. Called by streams/ops/rescore.py and streams/ops/rescorer.py.

-- name: lock$
-- Until the transaction ends, nobody else begins or resumes a run of this model.
SELECT pg_advisory_xact_lock(hashtextextended('rescore ' || :model_version, 0));

-- name: open_run^
-- A run of the model that is neither done nor cancelled, other than this one.
SELECT r.run_id, r.model, r.began_at
FROM ops.rescores AS r
WHERE r.model_version = :model_version AND r.run_id IS DISTINCT FROM :run_id AND r.cancelled_at IS NULL
    AND EXISTS (SELECT FROM ops.rescore_chunks AS c WHERE c.run_id = r.run_id AND c.done_at IS NULL)
LIMIT 1;

-- name: add_run^
-- To the millisecond, as documents' times are: what was saved up to now is in it.
INSERT INTO ops.rescores (model, model_version, as_of, began_at, deadline_at)
SELECT :model, :model_version, at, at, at + :deadline::interval
FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS at)
RETURNING run_id, as_of;

-- name: add_chunks!
-- The living documents in the order of their ids, cut into chunks of as many as asked for.
WITH numbered AS (
    SELECT document_id, (row_number() OVER (ORDER BY document_id) - 1) / :documents AS chunk
    FROM app.documents
    WHERE deleted_at IS NULL AND saved_at <= :as_of
), cut AS (
    SELECT chunk, max(document_id) AS last_id, count(*) AS documents FROM numbered GROUP BY chunk
)
INSERT INTO ops.rescore_chunks (run_id, chunk, after_id, last_id, documents)
SELECT :run_id, chunk, lag(last_id, 1, '') OVER (ORDER BY chunk), last_id, documents FROM cut;

-- name: send_again!
UPDATE ops.rescore_chunks SET sent = sent + 1 WHERE run_id = :run_id AND done_at IS NULL;

-- name: to_send
-- The chunks that are not done, as their events say it, each with the event's id first.
SELECT c.event_id, c.run_id, c.chunk, c.sent, r.model, r.model_version, c.after_id, c.last_id, r.as_of
FROM ops.rescore_chunks AS c
JOIN ops.rescores AS r USING (run_id)
WHERE c.run_id = :run_id AND c.done_at IS NULL
ORDER BY c.chunk;

-- name: send*!
INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload)
VALUES (:event_id, :topic, :key, 'rescore-chunk', :payload);

-- name: resume!
UPDATE ops.rescores SET cancelled_at = NULL, began_at = clock_timestamp() WHERE run_id = :run_id;

-- name: cancel!
UPDATE ops.rescores SET cancelled_at = clock_timestamp() WHERE run_id = :run_id;

-- name: now$
SELECT clock_timestamp();

-- name: newest_run$
SELECT max(run_id) FROM ops.rescores;

-- name: run^
SELECT run_id, model, model_version, as_of, began_at, deadline_at, cancelled_at
FROM ops.rescores
WHERE run_id = :run_id;

-- name: counts^
-- A chunk that is not done stands in the re-scorer's progress if it failed.
SELECT count(*), count(c.done_at), count(*) FILTER (WHERE p.state = 'retrying'), count(*) FILTER (WHERE p.state = 'dead'),
    sum(c.documents), coalesce(sum(c.documents) FILTER (WHERE c.done_at IS NOT NULL), 0), sum(c.scored), sum(c.failed),
    sum(c.scores), max(c.done_at), min(p.error)
FROM ops.rescore_chunks AS c
LEFT JOIN readers.progress AS p
    ON p.reader = :reader AND p.document_id = c.run_id || '/' || c.chunk AND p.version = c.sent
    AND p.state IN ('retrying', 'dead') AND c.done_at IS NULL
WHERE c.run_id = :run_id;

-- name: errors
SELECT document_id, version, error
FROM ops.rescore_errors
WHERE run_id = :run_id
ORDER BY document_id
LIMIT :rows_max;

-- name: finished
-- The last chunks that were done since the run began or was resumed, oldest first, with times since the epoch.
SELECT * FROM (
    SELECT extract(epoch FROM c.done_at)::float8 AS at, c.seconds, c.documents, c.worker
    FROM ops.rescore_chunks AS c
    JOIN ops.rescores AS r USING (run_id)
    WHERE c.run_id = :run_id AND c.done_at >= r.began_at
    ORDER BY c.done_at DESC
    LIMIT :rows_max
)
ORDER BY at;

-- name: busiest$
-- The most documents that are left to one worker: a chunk falls to the partition of its number. 0 if partitions moved
-- while the last chunks were done, as they do when workers are killed: who has them now is not who will do them.
WITH chunk AS (
    SELECT c.*, o.worker AS owner, c.done_at >= r.began_at AS is_of_now
    FROM ops.rescore_chunks AS c
    JOIN ops.rescores AS r USING (run_id)
    LEFT JOIN readers.owners AS o
        ON o.reader = :reader AND o.topic = :topic AND o.partition = mod(c.chunk, :partitions)
    WHERE c.run_id = :run_id
), recent AS (
    SELECT worker <> owner AS moved FROM chunk WHERE is_of_now ORDER BY done_at DESC LIMIT :rows_max
), share AS (
    SELECT sum(documents)::bigint AS documents FROM chunk WHERE done_at IS NULL GROUP BY owner
)
SELECT CASE WHEN (SELECT bool_or(moved) FROM recent) THEN 0 ELSE coalesce(max(documents), 0) END FROM share;

-- name: measured_run$
-- The newest other run of the model with a chunk done: what its workers did is the best guess at what they will do.
SELECT max(c.run_id)
FROM ops.rescore_chunks AS c
JOIN ops.rescores AS r USING (run_id)
WHERE r.model_version = :model_version AND c.run_id <> :run_id AND c.done_at IS NOT NULL;

-- name: is_wanted$
-- Whether a chunk is still to be done.
SELECT EXISTS (
    SELECT FROM ops.rescore_chunks AS c
    JOIN ops.rescores AS r USING (run_id)
    WHERE c.run_id = :run_id AND c.chunk = :chunk AND c.done_at IS NULL AND r.cancelled_at IS NULL
);

-- name: documents
-- The next documents of a chunk, as they are now; not those that were saved since the run began, or deleted.
SELECT document_id, owner_id, version, title, body, saved_at
FROM app.documents
WHERE document_id > :after_id AND document_id <= :last_id AND saved_at <= :as_of AND deleted_at IS NULL
ORDER BY document_id
LIMIT :rows_max;
