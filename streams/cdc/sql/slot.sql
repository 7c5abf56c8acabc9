-- The publication and the slot through which the relay reads the outbox.

-- name: slot_state^
-- Everything about the relay's end in Postgres, as one row; the slot's columns are NULL when there is no slot.
-- confirmed: how far the relay has confirmed; lag_bytes: what it has yet to confirm; held_bytes: of the write-ahead log,
-- held back for it, which a long transaction makes more; safe_bytes: how much more may be written before the slot is
-- lost (NULL: no limit). polled: whether the polling relay runs, which needs none of this.
SELECT
    p.pubinsert AND NOT (p.pubupdate OR p.pubdelete OR p.pubtruncate) AND t.tablename IS NOT NULL AS publication_ok,
    p.pubname IS NOT NULL AS publication_exists,
    s.slot_name IS NOT NULL AS slot_exists,
    s.plugin,
    s.active,
    s.wal_status,
    s.invalidation_reason,
    s.failover,
    s.confirmed_flush_lsn::text AS confirmed,
    pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn)::bigint AS lag_bytes,
    s.safe_wal_size AS safe_bytes,
    pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)::bigint AS held_bytes,
    EXISTS (
        SELECT FROM pg_locks
        WHERE locktype = 'advisory' AND classid = 0 AND objid::bigint = :polling_lock AND objsubid = 1 AND granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS polled
FROM (SELECT) AS one
LEFT JOIN pg_publication AS p ON p.pubname = :publication
LEFT JOIN pg_publication_tables AS t
    ON t.pubname = p.pubname AND t.schemaname = 'app' AND t.tablename = 'outbox'
LEFT JOIN pg_replication_slots AS s ON s.slot_name = :slot AND s.database = current_database();

-- name: create_publication!
-- Inserts alone: what is deleted from the outbox is no event.
CREATE PUBLICATION docs_outbox FOR TABLE app.outbox WITH (publish = 'insert');

-- name: drop_publication!
DROP PUBLICATION IF EXISTS docs_outbox;

-- name: create_slot!
-- Alone in its transaction, which must have written nothing. The last argument lets standbys keep a copy.
SELECT pg_create_logical_replication_slot(:slot, 'pgoutput', false, false, true);

-- name: drop_slot!
SELECT pg_drop_replication_slot(:slot);

-- name: end_reader!
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = :slot AND active_pid IS NOT NULL;

-- name: advance_slot!
-- Past everything that is committed now. The message flushes the log to its own position, so that the slot can go there.
SELECT pg_replication_slot_advance(:slot, pg_logical_emit_message(false, 'docs.advance', '', true));
