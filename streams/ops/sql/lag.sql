-- Lag over time, and what is known of groups beside the log. Called by streams/ops/lag_history.py, lag_postgres.py, relay_lag.py and lag_recorder.py.

-- name: tables^
-- Which of the tables are there: the database may be none of ours, or not set up yet.
SELECT
    to_regclass('readers.registered') IS NOT NULL,
    to_regclass('readers.parked') IS NOT NULL,
    to_regclass('ops.lag_samples') IS NOT NULL,
    to_regclass('app.outbox') IS NOT NULL;

-- name: now$
SELECT extract(epoch FROM clock_timestamp())::double precision;

-- name: parked
-- What each reader has parked, by the partition that it came from.
SELECT
    reader, topic, partition, count(*),
    extract(epoch FROM clock_timestamp() - min(parked_at))::double precision
FROM readers.parked GROUP BY reader, topic, partition;

-- name: recent_samples
-- The samples of the last :seconds, oldest first; of all groups if :groups is NULL.
SELECT
    group_name, extract(epoch FROM taken_at)::double precision, members,
    topics, partitions, committed, log_ends, lags, arrived, done, backlogs
FROM ops.lag_samples
WHERE taken_at > clock_timestamp() - make_interval(secs => :seconds::double precision)
  AND (:groups::text[] IS NULL OR group_name = ANY(:groups::text[]))
ORDER BY taken_at;

-- name: last_samples
-- The last sample of each of these groups, however old: a series goes on from there.
SELECT DISTINCT ON (group_name)
    group_name, extract(epoch FROM taken_at)::double precision, members,
    topics, partitions, committed, log_ends, lags, arrived, done, backlogs
FROM ops.lag_samples WHERE group_name = ANY(:groups::text[]) ORDER BY group_name, taken_at DESC;

-- name: capacities
-- What a group did per second while work waited, by its number of members, over the last :seconds.
SELECT group_name, members, percentile_cont(0.5) WITHIN GROUP (ORDER BY capacity_per_second)
FROM ops.lag_samples
WHERE taken_at > clock_timestamp() - make_interval(secs => :seconds::double precision)
  AND capacity_per_second IS NOT NULL AND members > 0
GROUP BY group_name, members;

-- name: add_sample!
-- The first sample of each ten minutes stays for 30 days, the first of each minute for a day, the others for an hour.
INSERT INTO ops.lag_samples
SELECT
    :group::text, s.taken_at,
    s.taken_at + CASE
        WHEN NOT EXISTS (
            SELECT FROM ops.lag_samples
            WHERE group_name = :group AND taken_at >= date_bin('10 minutes', s.taken_at, 'epoch')
        ) THEN interval '30 days'
        WHEN NOT EXISTS (
            SELECT FROM ops.lag_samples
            WHERE group_name = :group AND taken_at >= date_bin('1 minute', s.taken_at, 'epoch')
        ) THEN interval '1 day'
        ELSE interval '1 hour'
    END,
    :members::integer, :lag_records::bigint, :age_seconds::double precision, :backlog_records::double precision,
    :rate_in_per_second::double precision, :rate_out_per_second::double precision,
    :capacity_per_second::double precision, :drain_seconds::double precision, :shape::text, :health::text,
    :topics::text[], :partitions::integer[], :committed::bigint[], :log_ends::bigint[], :lags::bigint[],
    :arrived::double precision[], :done::double precision[], :backlogs::double precision[]
FROM (SELECT to_timestamp(:at::double precision) AS taken_at) AS s
ON CONFLICT DO NOTHING;

-- name: thin!
DELETE FROM ops.lag_samples WHERE expires_at < clock_timestamp();

-- name: lag_since
-- The lag over time of these groups, or of all: what a chart shows.
SELECT group_name, extract(epoch FROM taken_at)::double precision, lag_records FROM ops.lag_samples
WHERE taken_at > clock_timestamp() - make_interval(secs => :seconds::double precision)
  AND (:groups::text[] IS NULL OR group_name = ANY(:groups::text[])) AND lag_records IS NOT NULL
ORDER BY taken_at;

-- name: add_mark!
INSERT INTO ops.marks (kind, group_name, text) VALUES (:kind::text, :group::text, :text::text);

-- name: marks_since
-- The marks of these groups, and those that concern all; every mark if :groups is NULL.
SELECT extract(epoch FROM at)::double precision, kind, group_name, text FROM ops.marks
WHERE at > clock_timestamp() - make_interval(secs => :seconds::double precision)
  AND (:groups::text[] IS NULL OR group_name IS NULL OR group_name = ANY(:groups::text[]))
ORDER BY at;

-- name: forget_marks!
DELETE FROM ops.marks WHERE at < clock_timestamp() - interval '30 days';

-- name: newest_seq$
-- The last row of the outbox, or of one that was pruned away.
SELECT coalesce(max(seq), pg_sequence_last_value(pg_get_serial_sequence('app.outbox', 'seq')::regclass), 0)
FROM app.outbox;
