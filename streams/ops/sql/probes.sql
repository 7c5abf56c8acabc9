-- The servers as they answered last. Called by streams/ops/probes.py and streams/ops/stack_metrics.py.

-- name: write_states!
INSERT INTO ops.probes AS p (name, taken_at, state)
SELECT name, clock_timestamp(), state FROM unnest(:names::text[], :states::text[]) AS s (name, state)
ON CONFLICT (name) DO UPDATE SET taken_at = excluded.taken_at, state = excluded.state;

-- name: write_canary!
-- :seconds is NULL for one that has not come; it waits since it, or one before it, was sent.
INSERT INTO ops.probes AS p (name, taken_at, seconds, since)
VALUES (
    'canary', clock_timestamp(), :seconds::double precision,
    CASE WHEN :seconds::double precision IS NULL THEN to_timestamp(:sent_at::double precision) END
)
ON CONFLICT (name) DO UPDATE SET
    taken_at = excluded.taken_at,
    seconds = excluded.seconds,
    since = CASE WHEN excluded.since IS NOT NULL THEN coalesce(p.since, excluded.since) END;

-- name: probes
-- Each with its age; the canary's seconds go on while it is waited for.
SELECT
    name, extract(epoch FROM clock_timestamp() - taken_at)::double precision, state,
    coalesce(extract(epoch FROM clock_timestamp() - since)::double precision, seconds)
FROM ops.probes;
