-- What `streams lab chaos` counts and removes. Called by streams/lab/chaos.py.

-- name: standing^
-- The documents with a result, and the dead letters.
SELECT
    (SELECT count(DISTINCT document_id) FROM readers.output WHERE reader = :reader),
    (SELECT count(*) FROM readers.dead_letters WHERE reader = :reader AND state = 'open');

-- name: tally^
-- Documents with neither a row nor a dead letter, rows beyond the first of a document, rows, the counter, dead letters.
WITH results AS (SELECT document_id FROM readers.output WHERE reader = :reader AND document_id IS NOT NULL),
dead AS (SELECT document_id FROM readers.dead_letters WHERE reader = :reader AND state = 'open')
SELECT
    (SELECT count(*) FROM app.documents AS d WHERE d.owner_id = :owner_id
        AND d.document_id NOT IN (SELECT document_id FROM results UNION SELECT document_id FROM dead)),
    (SELECT count(*) - count(DISTINCT document_id) FROM results),
    (SELECT count(*) FROM results),
    (SELECT coalesce(sum((value ->> 'n')::bigint), 0)::bigint FROM readers.output
        WHERE reader = :reader AND key = :counter),
    (SELECT count(*) FROM dead);

-- name: forget_results!
-- Every row of the reader, and what other readers keep of its documents' progress.
WITH progress AS (DELETE FROM readers.progress
    WHERE reader = :reader OR document_id IN (SELECT document_id FROM app.documents WHERE owner_id = :owner_id)),
output AS (DELETE FROM readers.output WHERE reader = :reader),
parked AS (DELETE FROM readers.parked WHERE reader = :reader),
letters AS (DELETE FROM readers.dead_letters WHERE reader = :reader),
owners AS (DELETE FROM readers.owners WHERE reader = :reader)
DELETE FROM readers.registered WHERE reader = :reader;

-- name: forget_documents!
-- The documents with their jobs, events and keys; no event is on its way any more.
WITH documents AS (DELETE FROM app.documents WHERE owner_id = :owner_id RETURNING document_id),
jobs AS (DELETE FROM app.jobs WHERE document_id IN (SELECT document_id FROM documents) RETURNING event_id),
keys AS (DELETE FROM app.idempotency_keys WHERE event_id IN (SELECT event_id FROM jobs))
DELETE FROM app.outbox WHERE topic = :letters OR message_key IN (SELECT document_id FROM documents);

-- name: forget_topic!
DELETE FROM app.topics WHERE name = :letters;
