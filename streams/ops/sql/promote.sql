-- A shadow's results become the reader's, and back. Called by streams/ops/replay_promote.py, inside one transaction.
-- {…} are tables and columns, which no parameter can name.

-- name: alone$
-- One promotion or rollback of a reader at a time.
SELECT pg_advisory_xact_lock(hashtextextended('promote ' || :reader::text, 0));

-- name: fence!
-- Whoever runs as the reader writes nothing more: its epochs are passed. Waits for a batch in flight.
UPDATE readers.owners SET epoch = epoch + 1 WHERE reader = :reader;

-- name: columns
-- The columns of a table that can be written.
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum;

-- name: keep!
-- What was there, for a rollback.
CREATE TABLE {before} AS SELECT * FROM {live} {scope};

-- name: keep_progress!
CREATE TABLE {before} AS SELECT * FROM readers.progress WHERE reader = %(reader)s;

-- name: keep_letters!
-- Those of the reader that the replay has done, and the replay's own.
CREATE TABLE {before} AS
SELECT d.dead_letter_id, d.reader, d.state
FROM readers.dead_letters AS d
LEFT JOIN readers.progress AS p ON p.reader = %(group)s AND p.document_id = d.document_id
WHERE d.reader = %(group)s
    OR (d.reader = %(reader)s AND d.state IN ('open', 'redriven') AND p.completed @> d.version);

-- name: clear!
DELETE FROM {live} {scope};

-- name: copy!
INSERT INTO {live} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {source} {scope};

-- name: merge!
-- Rows of documents of which the reader has applied no later version than the replay, and of these none that is newer.
INSERT INTO {live} AS t ({columns}) OVERRIDING SYSTEM VALUE
SELECT {chosen}
FROM {source} AS s
JOIN readers.progress AS theirs ON theirs.reader = %(group)s AND theirs.document_id = s.document_id
LEFT JOIN readers.progress AS ours ON ours.reader = %(reader)s AND ours.document_id = s.document_id
WHERE theirs.applied_version >= coalesce(ours.applied_version, 0)
ON CONFLICT ({key}) DO UPDATE SET {sets}
WHERE t.document_id = excluded.document_id AND t.version <= excluded.version;

-- name: drop_progress!
DELETE FROM readers.progress WHERE reader = :reader;

-- name: take_progress!
INSERT INTO readers.progress (
    reader, document_id, version, state, applied_version, completed, pass, attempts, error, event_id, next_attempt_at,
    finished_at
)
SELECT
    :reader, document_id, version, state, applied_version, completed, pass, attempts, error, event_id, next_attempt_at,
    finished_at
FROM readers.progress WHERE reader = :group;

-- name: merge_progress!
-- What the replay has applied, where the reader has applied nothing later. A failure of a later version stays what it is.
INSERT INTO readers.progress AS p (reader, document_id, version, state, applied_version, completed, pass, event_id)
SELECT
    :reader, document_id, applied_version, 'done', applied_version, completed, pass,
    CASE WHEN version = applied_version THEN event_id END
FROM readers.progress WHERE reader = :group AND applied_version IS NOT NULL
ON CONFLICT (reader, document_id) DO UPDATE SET
    version         = greatest(p.version, excluded.version),
    state           = CASE WHEN excluded.version >= p.version THEN excluded.state ELSE p.state END,
    pass            = CASE WHEN excluded.version >= p.version THEN excluded.pass ELSE p.pass END,
    attempts        = CASE WHEN excluded.version >= p.version THEN excluded.attempts ELSE p.attempts END,
    error           = CASE WHEN excluded.version >= p.version THEN excluded.error ELSE p.error END,
    event_id        = CASE WHEN excluded.version >= p.version THEN excluded.event_id ELSE p.event_id END,
    next_attempt_at = CASE WHEN excluded.version >= p.version THEN NULL ELSE p.next_attempt_at END,
    finished_at     = CASE WHEN excluded.version >= p.version THEN clock_timestamp() ELSE p.finished_at END,
    applied_version = excluded.applied_version,
    completed       = p.completed + excluded.completed
WHERE excluded.applied_version >= coalesce(p.applied_version, 0);

-- name: resolve_letters!
UPDATE readers.dead_letters AS d SET state = 'resolved'
FROM {before} AS b WHERE d.dead_letter_id = b.dead_letter_id AND b.reader = %(reader)s;

-- name: take_letters!
-- The replay's letters become the reader's; not where it has one of the same record.
UPDATE readers.dead_letters AS d SET reader = :reader
WHERE reader = :group AND NOT EXISTS (
    SELECT FROM readers.dead_letters AS o
    WHERE o.reader = :reader AND (o.topic, o.partition, o."offset") = (d.topic, d.partition, d."offset")
);

-- name: restore_letters!
UPDATE readers.dead_letters AS d SET reader = b.reader, state = b.state
FROM {before} AS b WHERE d.dead_letter_id = b.dead_letter_id;

-- name: restore_progress!
INSERT INTO readers.progress SELECT * FROM {before};

-- name: promoted!
WITH places AS (
    UPDATE ops.replay_partitions AS p SET live_position = given.position
    FROM unnest(:partitions::int[], :positions::bigint[]) AS given (partition, position)
    WHERE p.run = :run AND p.partition = given.partition
)
UPDATE ops.replays SET state = 'promoted', promoted_at = clock_timestamp() WHERE run = :run;

-- name: rolled_back!
WITH places AS (UPDATE ops.replay_partitions SET live_position = NULL WHERE run = :run)
UPDATE ops.replays SET state = 'done', promoted_at = NULL WHERE run = :run;

-- name: promoted_later$
-- Another replay of the reader that was promoted after this one, and stands.
SELECT max(o.run) FROM ops.replays AS o
JOIN ops.replays AS r ON r.reader = o.reader AND o.promoted_at > r.promoted_at
WHERE r.run = :run AND o.state = 'promoted';
