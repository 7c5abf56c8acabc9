-- The outbox as the polling relay reads it. Called by streams/ops/polling.py; docs/decisions/polling-relay.md says why
-- a set of numbers is kept, and not the last one.

-- name: try_lock$
SELECT pg_try_advisory_lock(:lock);

-- name: choose!
UPDATE app.outbox_polled SET chosen = true WHERE NOT chosen;

-- name: waiting_rows
-- All that is not known to be in the log: columns as in relay.sql's newest_rows.
SELECT
    o.seq, o.event_id::text, o.topic, 0 AS bytes, least(greatest(o.created_at, '1970-01-01'), '9999-01-01')
FROM app.outbox_polled AS p
CROSS JOIN LATERAL unnest(p.waiting) AS gap (seqs)
JOIN app.outbox AS o
    ON o.seq >= coalesce(lower(gap.seqs), 0) AND o.seq < coalesce(upper(gap.seqs), 9223372036854775807);

-- name: batch
-- The first rows that wait, by seq: at most :rows_max, and of :bytes_max or one. Each gap is an index scan of its own.
SELECT
    seq, topic, message_key, payload, event_id::text, event_type, traceparent,
    (extract(epoch FROM least(greatest(created_at, '1970-01-01'), '9999-01-01')) * 1000)::bigint AS timestamp_ms
FROM (
    SELECT waiting.*, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS bytes_before
    FROM (
        SELECT o.*
        FROM app.outbox_polled AS p
        CROSS JOIN LATERAL unnest(p.waiting) AS gap (seqs)
        CROSS JOIN LATERAL (
            SELECT * FROM app.outbox
            WHERE seq >= coalesce(lower(gap.seqs), 0) AND seq < coalesce(upper(gap.seqs), 9223372036854775807)
            ORDER BY seq LIMIT :rows_max
        ) AS o
        ORDER BY o.seq LIMIT :rows_max
    ) AS waiting
) AS counted
WHERE bytes_before < :bytes_max
ORDER BY seq;

-- name: note!
-- These are in the log.
UPDATE app.outbox_polled SET waiting = waiting - coalesce(
    (SELECT range_agg(int8range(seq, seq, '[]')) FROM unnest(:seqs::bigint[]) AS done (seq)), '{}'
);

-- name: horizon^
-- The newest row, and the end of the write-ahead log: to be read before the writers.
SELECT coalesce(max(seq), 0), pg_current_wal_insert_lsn()::text FROM app.outbox;

-- name: writers
-- The transactions that may yet commit a row with a number drawn by now: an insert locks the table before it draws.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = 'app.outbox'::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid();

-- name: settle!
-- No row up to this one will come any more.
UPDATE app.outbox_polled SET waiting = waiting - int8multirange(int8range(NULL, :seq, '(]'))
WHERE waiting && int8range(NULL, :seq, '(]');

-- name: advance_slot!
-- Debezium's slot, if there is one that can be used: left where it is, it would hold back the write-ahead log.
SELECT pg_replication_slot_advance(slot_name, :lsn::pg_lsn) FROM pg_replication_slots
WHERE slot_name = :slot AND database = current_database() AND NOT active AND wal_status <> 'lost'
  AND invalidation_reason IS NULL AND confirmed_flush_lsn < :lsn::pg_lsn;
