-- What the API reads: documents with their results, jobs by reader, readiness. Called by streams/api/reads.py, health.py.

-- name: document^
-- A living document with all that the readers have made of it, as of one moment. Scores only for queries that still
-- stand; a result's version may be older than the document's.
SELECT
    d.document_id, d.owner_id, d.title, d.body, d.version, d.saved_at,
    (SELECT to_jsonb(s) FROM readers.summaries s WHERE s.document_id = d.document_id) AS summary,
    (
        SELECT coalesce(jsonb_agg(to_jsonb(s) || jsonb_build_object('query', q.query) ORDER BY s.score DESC), '[]')
        FROM readers.scores s
        JOIN app.saved_queries q USING (query_id)
        WHERE s.document_id = d.document_id
    ) AS scores,
    (
        SELECT coalesce(jsonb_object_agg(p.reader, to_jsonb(p)), '{}')
        FROM readers.progress p
        JOIN readers.registered USING (reader)
        WHERE p.document_id = d.document_id
    ) AS readers
FROM app.documents d
WHERE d.document_id = :document_id AND d.deleted_at IS NULL;

-- name: job^
SELECT event_id AS job_id, document_id, version, saved_at FROM app.jobs WHERE event_id = :job_id;

-- name: job_states
-- How each reader stands to a job: the first that holds. `completed` has every version whose effects were applied,
-- which tells a job that was done before a later one from one that the later one overtook.
SELECT
    r.reader,
    CASE
        WHEN dead.error IS NOT NULL THEN 'dead'
        WHEN waits.reader IS NOT NULL THEN 'retrying'
        WHEN p.version = :version AND p.state = 'expired' THEN p.state
        WHEN p.applied_version = :version THEN 'done'
        WHEN p.applied_version > :version AND p.completed @> :version::bigint THEN 'done'
        WHEN p.applied_version > :version THEN 'superseded'
        ELSE 'pending'
    END AS state,
    dead.attempts AS dead_attempts,
    dead.error AS dead_error,
    waits.attempts,
    waits.next_attempt_at,
    waits.error
FROM readers.registered r
LEFT JOIN readers.progress p ON p.reader = r.reader AND p.document_id = :document_id
LEFT JOIN LATERAL (
    SELECT d.attempts, d.error_class || ': ' || d.error_message AS error
    FROM readers.dead_letters d
    WHERE d.event_id = :job_id AND d.reader = r.reader AND d.state = 'open'
    ORDER BY d.died_at DESC
    LIMIT 1
) dead ON true
LEFT JOIN readers.parked waits ON waits.event_id = :job_id AND waits.reader = r.reader
ORDER BY r.reader;

-- name: migrations
SELECT name FROM public.migrations;

-- name: has_topic$
SELECT EXISTS (SELECT FROM app.topics WHERE name = :topic);
