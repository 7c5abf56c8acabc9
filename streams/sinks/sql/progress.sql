-- name: claim
-- Raise the epochs of partitions. In order, so that two claims cannot deadlock. Waits for a batch in flight of the
-- former owner, which ends within the session's transaction_timeout even if that worker is frozen.
INSERT INTO readers.owners AS o (reader, topic, partition, epoch, worker)
SELECT :reader, given.topic, given.partition, 1, :worker
FROM unnest(:topics::text[], :partitions::int[]) AS given (topic, partition)
ORDER BY given.topic, given.partition
ON CONFLICT (reader, topic, partition) DO UPDATE SET epoch = o.epoch + 1, worker = excluded.worker
RETURNING topic, partition, epoch, received_to, died_from, died_to;

-- name: leave!
-- What the next owner of these partitions must know, should this one die. Not worth waiting for the disk: a worker's
-- death loses nothing of it.
WITH relaxed AS (SELECT set_config('synchronous_commit', 'off', true))
UPDATE readers.owners AS o
SET received_to = given.received_to, died_from = given.died_from, died_to = given.died_to
FROM relaxed, unnest(
    :topics::text[], :partitions::int[], :epochs::bigint[], :received_to::bigint[], :died_from::bigint[],
    :died_to::bigint[]
) AS given (topic, partition, epoch, received_to, died_from, died_to)
WHERE o.reader = :reader AND o.topic = given.topic AND o.partition = given.partition AND o.epoch = given.epoch;

-- name: owned
-- The epochs as they are, held still until the transaction ends.
SELECT o.topic, o.partition, o.epoch
FROM readers.owners AS o
JOIN unnest(:topics::text[], :partitions::int[]) AS given (topic, partition) USING (topic, partition)
WHERE o.reader = :reader
ORDER BY o.topic, o.partition
FOR SHARE OF o;

-- name: new_pass$
-- A number for a new reading of the log.
SELECT nextval('readers.pass_number');

-- name: lookup
-- How far the reader has come with these documents.
SELECT document_id, version, state, coalesce(applied_version, 0), pass
FROM readers.progress
WHERE reader = :reader AND document_id = ANY(:document_ids);

-- name: guard
-- One record's progress. No row comes back where the record must have no effect: it is older than what was applied,
-- or a failure of a version that is done. `first_time` is false where the version was applied before.
INSERT INTO readers.progress AS p
    (reader, document_id, version, state, applied_version, completed, pass, attempts, error, event_id, next_attempt_at)
VALUES (
    %(reader)s, %(document_id)s, %(version)s, %(state)s,
    CASE WHEN %(done)s THEN %(version)s END,
    CASE WHEN %(done)s THEN int8multirange(int8range(%(version)s, %(version)s, '[]')) ELSE '{}' END,
    %(pass)s, %(attempts)s, %(error)s, %(event_id)s, %(next_attempt_at)s
)
ON CONFLICT (reader, document_id) DO UPDATE SET
    version         = greatest(p.version, excluded.version),
    state           = CASE WHEN excluded.version >= p.version THEN excluded.state ELSE p.state END,
    pass            = CASE WHEN excluded.version >= p.version THEN excluded.pass ELSE p.pass END,
    attempts        = CASE WHEN excluded.version >= p.version THEN excluded.attempts ELSE p.attempts END,
    error           = CASE WHEN excluded.version >= p.version THEN excluded.error ELSE p.error END,
    event_id        = CASE WHEN excluded.version >= p.version THEN excluded.event_id ELSE p.event_id END,
    next_attempt_at = CASE WHEN excluded.version >= p.version THEN excluded.next_attempt_at ELSE p.next_attempt_at END,
    finished_at     = CASE WHEN excluded.version >= p.version THEN clock_timestamp() ELSE p.finished_at END,
    applied_version = coalesce(excluded.applied_version, p.applied_version),
    completed       = p.completed + excluded.completed
WHERE CASE WHEN excluded.state = 'done' THEN excluded.version >= coalesce(p.applied_version, 0)
           ELSE excluded.version > p.version OR (excluded.version = p.version AND p.state <> 'done') END
RETURNING coalesce(old.applied_version, 0) < coalesce(new.applied_version, 0) AS first_time;
