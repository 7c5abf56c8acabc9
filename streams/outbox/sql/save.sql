-- The save: every write of a document and its event, in one transaction. Called by streams/outbox/save.py.

-- name: claim_key^
-- The holder of an idempotency key: this event, if the key was free. Waits for another transaction that is taking it;
-- the update changes nothing, it makes the row come back.
INSERT INTO app.idempotency_keys AS k (key, request_hash, event_id)
VALUES (:key, :request_hash, :event_id)
ON CONFLICT (key) DO UPDATE SET key = k.key
RETURNING request_hash, event_id;

-- name: job^
SELECT event_id, document_id, version FROM app.jobs WHERE event_id = :event_id;

-- name: put_document^
-- The document's next version. ON CONFLICT locks the row before SET is computed, so saves of one document queue up
-- here, each sees the version before it, and its time is the later one: clock_timestamp(), not the transaction's
-- start. To the millisecond, which is what the event and the record's time can hold.
INSERT INTO app.documents AS d (document_id, owner_id, title, body, version, saved_at)
VALUES (:document_id, :owner_id, :title, :body, 1, date_trunc('milliseconds', clock_timestamp()))
ON CONFLICT (document_id) DO UPDATE SET
    owner_id = excluded.owner_id,
    title = excluded.title,
    body = excluded.body,
    version = d.version + 1,
    saved_at = date_trunc('milliseconds', clock_timestamp()),
    deleted_at = NULL
RETURNING owner_id, version, saved_at;

-- name: delete_document^
-- The same for a deletion, which is a version too; no row if there is no such document, or no longer.
UPDATE app.documents SET
    title = '',
    body = '',
    version = version + 1,
    saved_at = date_trunc('milliseconds', clock_timestamp()),
    deleted_at = clock_timestamp()
WHERE document_id = :document_id AND deleted_at IS NULL
RETURNING owner_id, version, saved_at;

-- name: emit!
-- The job and the event of a version, under the document's lock: seq is drawn here, so it has the versions' order.
WITH job AS (
    INSERT INTO app.jobs (event_id, document_id, version, saved_at)
    VALUES (:event_id, :document_id, :version, :saved_at)
)
INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload, traceparent, created_at)
VALUES (:event_id, :topic, :document_id, :type, :payload, :traceparent, :saved_at AT TIME ZONE 'utc');
