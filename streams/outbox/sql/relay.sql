-- The outbox as the relay and its operators see it. Called by streams/stack/setup.py and streams/ops.

-- name: topic_names
SELECT name FROM app.topics;

-- name: add_topics!
-- Only topics that exist in Kafka may stand here: a row of the outbox for another would hang the relay for everyone.
INSERT INTO app.topics (name) SELECT unnest(:names::text[]) ON CONFLICT DO NOTHING;

-- name: reader_names
SELECT reader FROM readers.registered;

-- name: add_readers!
INSERT INTO readers.registered (reader) SELECT unnest(:names::text[]) ON CONFLICT DO NOTHING;

-- name: reader_is_ready$
-- Whether everything was made before that a reader needs: it is registered last.
SELECT EXISTS (SELECT FROM readers.registered WHERE reader = :reader)
    AND EXISTS (SELECT FROM app.topics WHERE name = :letters);

-- name: is_left_to_polling$
SELECT chosen FROM app.outbox_polled;

-- name: give_to_debezium!
UPDATE app.outbox_polled SET chosen = false WHERE chosen;

-- name: outbox_count$
SELECT count(*) FROM app.outbox;

-- name: newest_rows
-- The newest rows, by seq; :rows_max NULL means all. Times are cut to what a record's time can be.
SELECT * FROM (
    SELECT
        seq,
        event_id::text,
        topic,
        octet_length(payload) + octet_length(message_key) + octet_length(event_type)
            + coalesce(octet_length(traceparent), 0) AS bytes,
        least(greatest(created_at, '1970-01-01'), '9999-01-01') AS created_at
    FROM app.outbox ORDER BY seq DESC LIMIT :rows_max
) AS newest ORDER BY seq;

-- name: rows_to_skip
-- The same columns of these rows, whether they are still in the outbox or were set aside before.
SELECT seq, event_id::text, topic, 0 AS bytes, least(greatest(created_at, '1970-01-01'), '9999-01-01') AS created_at
FROM (
    SELECT seq, event_id, topic, created_at FROM app.outbox
    UNION ALL
    SELECT seq, event_id, topic, created_at FROM app.outbox_skipped
) AS rows
WHERE seq = ANY(:seqs::bigint[]);

-- name: oldest_times
-- From when each topic must be read to know which of its rows are in the log.
SELECT topic, least(greatest(min(created_at), '1970-01-01'), '9999-01-01') FROM app.outbox GROUP BY topic;

-- name: lock_outbox!
-- Blocks inserts, not reads; saves in progress end first.
LOCK TABLE app.outbox IN SHARE ROW EXCLUSIVE MODE;

-- name: emit_again!
-- These rows once more, in the order of seq, copies once. With :fresh each event once, with a new time: a replayed day
-- is no day of lag.
INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload, traceparent, created_at)
SELECT
    event_id, topic, message_key, event_type, payload, traceparent,
    CASE WHEN :fresh THEN clock_timestamp() AT TIME ZONE 'utc' ELSE created_at END
FROM (
    SELECT DISTINCT ON (event_id, CASE WHEN :fresh THEN NULL ELSE created_at END) *
    FROM app.outbox WHERE seq = ANY(:seqs::bigint[])
    ORDER BY event_id, CASE WHEN :fresh THEN NULL ELSE created_at END, seq
) AS once
ORDER BY seq;

-- name: seqs_between
-- The rows of a range of seq or of time (UTC); an open end is NULL.
SELECT seq FROM app.outbox
WHERE (:since_seq::bigint IS NULL OR seq >= :since_seq) AND (:until_seq::bigint IS NULL OR seq <= :until_seq)
  AND (:since::timestamp IS NULL OR created_at >= :since) AND (:until::timestamp IS NULL OR created_at <= :until);

-- name: set_aside!
-- Every row of these events leaves the outbox and is kept where the relay does not look.
WITH gone AS (DELETE FROM app.outbox WHERE event_id = ANY(:event_ids::uuid[]) RETURNING *)
INSERT INTO app.outbox_skipped (seq, event_id, topic, message_key, event_type, payload, traceparent, created_at)
SELECT seq, event_id, topic, message_key, event_type, payload, traceparent, created_at FROM gone;

-- name: forget_marks!
DELETE FROM app.outbox_marks;

-- name: mark!
-- Under the outbox's lock: every row up to the last one was committed before this position of the write-ahead log.
INSERT INTO app.outbox_marks (seq, wal_lsn)
SELECT max(seq), pg_current_wal_insert_lsn() FROM app.outbox HAVING max(seq) IS NOT NULL
ON CONFLICT (seq) DO NOTHING;

-- name: confirmed_mark$
-- Every row up to here is in the log: the slot has confirmed the position that was recorded after them, or the polling
-- relay has none of them left to publish.
SELECT greatest(
    (
        SELECT max(m.seq) FROM app.outbox_marks AS m
        JOIN pg_replication_slots AS s ON s.slot_name = :slot AND m.wal_lsn <= s.confirmed_flush_lsn
    ),
    (SELECT lower(waiting) - 1 FROM app.outbox_polled)
);

-- name: newest_mark$
SELECT max(seq) FROM app.outbox_marks;

-- name: prune_some!
-- One small batch, so that no lock is held for long.
DELETE FROM app.outbox WHERE seq IN (
    SELECT seq FROM app.outbox
    WHERE seq <= :seq AND created_at < (clock_timestamp() AT TIME ZONE 'utc') - :older_than::interval
    ORDER BY seq LIMIT :rows_max
);

-- name: forget_marks_before!
DELETE FROM app.outbox_marks WHERE seq < :seq;

-- name: old_count$
SELECT count(*) FROM app.outbox WHERE created_at < (clock_timestamp() AT TIME ZONE 'utc') - :older_than::interval;

-- name: emit_canary$
INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload)
VALUES (:event_id, :topic, 'doctor', 'canary', convert_to('{"canary": true}', 'UTF8'))
RETURNING seq;

-- name: remove_canary!
-- In the transaction that wrote it: Debezium reads the insert from the write-ahead log, and no row stays behind. The
-- polling relay reads rows: there it is removed when it has come.
DELETE FROM app.outbox WHERE seq = :seq;
