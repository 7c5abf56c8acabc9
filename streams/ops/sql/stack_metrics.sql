-- The stack's metrics. Called by streams/ops/stack_metrics.py; each is asked at every scrape, and reads few rows.

-- name: newest_samples
-- The newest sample of each reader, of the analytics and of the relay, however old; and how old it is.
SELECT
    g.name, extract(epoch FROM clock_timestamp() - s.taken_at)::double precision,
    s.members, s.lag_records, s.backlog_records, s.age_seconds, s.rate_in_per_second, s.rate_out_per_second,
    s.drain_seconds, s.shape, s.health
FROM (SELECT reader FROM readers.registered UNION SELECT unnest(:others::text[])) AS g (name)
CROSS JOIN LATERAL (
    SELECT * FROM ops.lag_samples WHERE group_name = g.name ORDER BY taken_at DESC LIMIT 1
) AS s
ORDER BY g.name;
