-- name: parked_lanes
-- Those of the lanes that have parked records.
SELECT DISTINCT lane FROM readers.parked WHERE reader = :reader AND lane = ANY(:lanes);

-- name: heads
-- The first record of each lane that is due and falls to our partitions. A lane is due by any of its records; the first
-- of it may be another, which then says itself how long it waits.
WITH due AS (
    SELECT lane, min(next_attempt_at) AS since
    FROM readers.parked
    WHERE reader = :reader AND next_attempt_at <= :until
        AND mod(lane_hash, :partitions) = ANY(:numbers::int[]) AND lane <> ALL(:active::text[])
    GROUP BY lane
    ORDER BY since
    LIMIT :rows_max
)
SELECT first.lane, first.lane_hash, first.topic, first.partition, first."offset", first."timestamp", first.key,
    first.value, first.header_names, first.header_values, first.attempts, first.first_failed_at, first.next_attempt_at,
    first.runs
FROM due
CROSS JOIN LATERAL (
    SELECT * FROM readers.parked AS p
    WHERE p.reader = :reader AND p.lane = due.lane
    ORDER BY p.version, p.partition, p."offset", p.topic
    LIMIT 1
) AS first;

-- name: begin!
-- Note that handlers of parked records begin: should they kill their worker, the next one finds it here.
UPDATE readers.parked AS p SET runs = given.runs
FROM unnest(:topics::text[], :partitions::int[], :offsets::bigint[], :runs::int[])
    AS given (topic, partition, "offset", runs)
WHERE p.reader = :reader AND p.topic = given.topic AND p.partition = given.partition AND p."offset" = given."offset";

-- name: park!
-- Keep a record that failed, or that stands behind one that did. The first of a lane always has a time.
INSERT INTO readers.parked (
    reader, lane, lane_hash, version, topic, partition, "offset", "timestamp", key, value, header_names, header_values,
    event_id, attempts, error, first_failed_at, next_attempt_at
) VALUES (
    %(reader)s, %(lane)s, %(lane_hash)s, %(version)s, %(topic)s, %(partition)s, %(offset)s, %(timestamp)s, %(key)s,
    %(value)s, %(header_names)s, %(header_values)s, %(event_id)s, %(attempts)s, %(error)s, %(first_failed_at)s,
    CASE WHEN %(attempts)s > 0 THEN %(next_attempt_at)s
         WHEN NOT EXISTS (SELECT FROM readers.parked WHERE reader = %(reader)s AND lane = %(lane)s)
         THEN clock_timestamp() END
)
ON CONFLICT (reader, topic, partition, "offset") DO UPDATE SET
    attempts = excluded.attempts, error = excluded.error, first_failed_at = excluded.first_failed_at,
    next_attempt_at = excluded.next_attempt_at
WHERE excluded.attempts > 0;

-- name: postpone!
-- A parked record failed again. Not where it is gone: somebody else has settled it.
UPDATE readers.parked
SET runs = 0, attempts = %(attempts)s, error = %(error)s, first_failed_at = %(first_failed_at)s,
    next_attempt_at = %(next_attempt_at)s
WHERE reader = %(reader)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s;

-- name: unpark!
-- A parked record is settled.
DELETE FROM readers.parked
WHERE reader = %(reader)s AND topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s;

-- name: promote!
-- The next of its lane is the first now.
UPDATE readers.parked SET next_attempt_at = coalesce(next_attempt_at, clock_timestamp())
WHERE (reader, topic, partition, "offset") = (
    SELECT reader, topic, partition, "offset" FROM readers.parked
    WHERE reader = %(reader)s AND lane = %(lane)s
    ORDER BY version, partition, "offset", topic
    LIMIT 1
);
