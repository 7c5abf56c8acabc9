-- Called by streams/ops/duty.py.

-- name: try_lock$
-- One process at a time, never before its table is there; the lock ends with the session.
SELECT CASE WHEN to_regclass(:table) IS NOT NULL THEN pg_try_advisory_lock(:lock) ELSE false END;
