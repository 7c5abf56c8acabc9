-- Bounded replays. Called by streams/ops/replay_runs.py, replay_worker.py, replay_diff.py and replay_promote.py.

-- name: add^
-- A new replay; gives its number.
INSERT INTO ops.replays (
    reader, topic, target, asked_from, asked_to, since_ms, until_ms, whole, rate_per_second, external, records_about
) VALUES (
    :reader, :topic, :target, :asked_from, :asked_to, :since_ms, :until_ms, :whole, :rate_per_second, :external,
    :records_about
)
RETURNING run;

-- name: add_partitions!
INSERT INTO ops.replay_partitions (run, partition, from_position, to_position, position)
SELECT :run, * FROM unnest(:partitions::int[], :starts::bigint[], :ends::bigint[], :starts::bigint[]);

-- name: runs
-- One replay, or all: the newest first. `seconds_silent`: since its worker was last alive.
SELECT
    r.run, reader, topic, target, asked_from, asked_to, since_ms, until_ms, whole, rate_per_second, external, state,
    records_about, records_read, begun_at, ended_at,
    extract(epoch FROM clock_timestamp() - seen_at)::double precision AS seconds_silent,
    p.offsets, p.offsets_read
FROM ops.replays AS r
CROSS JOIN LATERAL (
    SELECT sum(to_position - from_position)::bigint AS offsets, sum(position - from_position)::bigint AS offsets_read
    FROM ops.replay_partitions AS p WHERE p.run = r.run
) AS p
WHERE :run::bigint IS NULL OR r.run = :run
ORDER BY r.run DESC;

-- name: partitions
SELECT partition, from_position, to_position, position, live_position FROM ops.replay_partitions WHERE run = :run ORDER BY partition;

-- name: try_lock$
-- Held by a replay's worker, or by whoever changes what it leaves.
SELECT pg_try_advisory_lock(hashtextextended(:name, 0));

-- name: extend!
-- Read on to the end of the log as it is now.
WITH places AS (
    UPDATE ops.replay_partitions AS p SET to_position = greatest(p.to_position, given.position)
    FROM unnest(:partitions::int[], :ends::bigint[]) AS given (partition, position)
    WHERE p.run = :run AND p.partition = given.partition
)
UPDATE ops.replays SET state = 'open', ended_at = NULL, records_about = records_read + :more WHERE run = :run;

-- name: set_rate!
UPDATE ops.replays SET rate_per_second = :rate_per_second WHERE run = :run;

-- name: note$
-- How far the worker is; gives the state, which somebody else may have changed.
WITH places AS (
    UPDATE ops.replay_partitions AS p SET position = given.position
    FROM unnest(:partitions::int[], :positions::bigint[]) AS given (partition, position)
    WHERE p.run = :run AND p.partition = given.partition
)
UPDATE ops.replays SET seen_at = clock_timestamp(), records_read = :records_read WHERE run = :run RETURNING state;

-- name: parked_count$
SELECT count(*) FROM readers.parked WHERE reader = :group;

-- name: letters_count$
SELECT count(*) FROM readers.dead_letters WHERE reader = :group AND state = 'open';

-- name: end!
UPDATE ops.replays SET state = :state, ended_at = clock_timestamp() WHERE run = :run AND state <> :state;

-- name: forget!
-- What only a replay that goes on needs; without `progress` that stays, for a shadow, and dead letters, for people.
WITH owners AS (DELETE FROM readers.owners WHERE reader = :group),
parked AS (DELETE FROM readers.parked WHERE reader = :group AND NOT :keep),
letters AS (DELETE FROM readers.dead_letters WHERE reader = :group AND NOT :keep)
DELETE FROM readers.progress WHERE reader = :group AND NOT (:keep AND :target = 'shadow');

-- name: pace$
-- Documents a second that the reader did last: no more than came in, so its capacity may be far more.
SELECT count(*) / nullif(extract(epoch FROM max(finished_at) - min(finished_at))::double precision, 0)
FROM (
    SELECT finished_at FROM readers.progress WHERE reader = :reader AND state = 'done'
    ORDER BY finished_at DESC LIMIT 1000
) AS last;

-- name: shadow_tables
SELECT name, key, shared, counts FROM ops.replay_tables WHERE run = :run ORDER BY name;

-- name: diff
-- The rows of a table by what the shadow says of them: how many, and the first few of each kind. `newer`: the reader has
-- applied a later version than the replay. `outside`: the replay, of a part of the log, has not seen the document.
WITH judged AS (
    SELECT
        rows.live, rows.shadow,
        CASE
            WHEN rows.live = rows.shadow THEN 'same'
            WHEN rows.document_id IS NOT NULL AND theirs.document_id IS NULL AND NOT :whole THEN 'outside'
            WHEN ours.applied_version > coalesce(theirs.applied_version, 0) THEN 'newer'
            WHEN rows.live IS NULL THEN 'only_shadow'
            WHEN rows.shadow IS NULL THEN 'only_live'
            ELSE 'changed'
        END AS kind
    FROM (
        SELECT
            to_jsonb(l) AS live, to_jsonb(s) AS shadow,
            coalesce(to_jsonb(l) ->> 'document_id', to_jsonb(s) ->> 'document_id') AS document_id
        FROM (SELECT * FROM {live} {scope}) AS l
        FULL JOIN (SELECT * FROM {shadow} {scope}) AS s USING ({key})
    ) AS rows
    LEFT JOIN readers.progress AS ours ON ours.reader = :reader AND ours.document_id = rows.document_id
    LEFT JOIN readers.progress AS theirs ON theirs.reader = :group AND theirs.document_id = rows.document_id
), counted AS (
    SELECT
        kind, live, shadow, count(*) OVER (PARTITION BY kind) AS count,
        row_number() OVER (PARTITION BY kind ORDER BY coalesce(live, shadow)) AS number
    FROM judged
)
SELECT kind, count, live, shadow FROM counted WHERE number <= greatest(1, :examples_max) ORDER BY kind, number;
