-- What the demo shows and writes: every number is counted here. Called by streams/lab/demo.py.

-- name: now$
SELECT clock_timestamp();

-- name: standing
-- How far each reader is with the owner's documents that were saved since a moment: how many it has done, and how many
-- it has given up (dead letters) at the version that they have now.
SELECT
    reader,
    count(*) FILTER (WHERE p.version = d.version AND p.state = 'done') AS done,
    count(*) FILTER (WHERE p.version = d.version AND p.state IN ('dead', 'expired')) AS given_up
FROM unnest(:readers::text[]) AS r (reader)
CROSS JOIN app.documents AS d
LEFT JOIN readers.progress AS p USING (reader, document_id)
WHERE d.owner_id = :owner_id AND d.deleted_at IS NULL AND d.saved_at >= :since
GROUP BY reader;

-- name: numbers^
-- The owner's documents, and what the readers have made of the version that each has now.
WITH ours AS (SELECT document_id, version FROM app.documents WHERE owner_id = :owner_id AND deleted_at IS NULL)
SELECT
    count(*) AS documents,
    (SELECT count(*) FROM readers.summaries AS s JOIN ours AS d USING (document_id, version)) AS summaries,
    (
        SELECT count(*) FROM readers.scores AS s
        JOIN ours AS d USING (document_id, version)
        JOIN app.saved_queries AS q USING (query_id)
        WHERE q.owner_id = :owner_id
    ) AS scores,
    (SELECT count(*) FROM readers.search_index AS i JOIN ours AS d USING (document_id, version)) AS indexed,
    (SELECT count(*) FROM readers.dead_letters AS l JOIN ours AS d USING (document_id) WHERE l.state = 'open') AS dead
FROM ours;

-- name: failing^
-- A document that a reader tries again and again, or has given up; the one with most attempts.
SELECT document_id, attempts, error
FROM readers.progress JOIN app.documents USING (document_id)
WHERE reader = :reader AND owner_id = :owner_id AND state IN ('retrying', 'dead')
ORDER BY attempts DESC, finished_at LIMIT 1;

-- name: summaries
-- A few summaries: of the longest docstrings, where a summary says most.
SELECT d.title, length(d.body), s.summary
FROM app.documents AS d JOIN readers.summaries AS s USING (document_id, version)
WHERE d.owner_id = :owner_id AND d.deleted_at IS NULL AND starts_with(d.document_id, 'module:')
ORDER BY length(d.body) DESC, d.document_id LIMIT :rows_max;

-- name: best_hits
-- The best document for each of the owner's queries, in the order in which the queries were saved.
SELECT q.query, hit.title, hit.score
FROM app.saved_queries AS q
CROSS JOIN LATERAL (
    SELECT d.title, s.score
    FROM readers.scores AS s JOIN app.documents AS d USING (document_id, version)
    WHERE s.query_id = q.query_id AND d.deleted_at IS NULL
    ORDER BY s.score DESC, d.document_id LIMIT 1
) AS hit
WHERE q.owner_id = :owner_id
ORDER BY q.created_at;
