-- Dead letters, for the people who look after them.

-- name: letters
-- The first of those for which all filters hold, each with how many there are in all; a filter that is NULL holds.
SELECT count(*) OVER (), dead_letter_id, reader, topic, partition, "offset", document_id, version, state, error_class,
    error_message, attempts, died_at
FROM readers.dead_letters
WHERE (:reader::text IS NULL OR reader = :reader)
    AND (:state::text IS NULL OR state = :state)
    AND (:error::text IS NULL OR error_class || ': ' || error_message ILIKE '%%' || :error || '%%')
    AND (:key::text IS NULL OR document_id = :key OR key = convert_to(:key, 'utf8'))
    AND (:since::timestamptz IS NULL OR died_at >= :since)
    AND (:ids::bigint[] IS NULL OR dead_letter_id = ANY(:ids))
    AND (NOT :live OR position('@' IN reader) = 0)
ORDER BY dead_letter_id
LIMIT :rows_max;

-- name: letter^
-- One letter with everything that was kept.
SELECT dead_letter_id, reader, topic, partition, "offset", "timestamp", key, value, header_names, header_values,
    event_id, document_id, version, error_class, error_message, traceback, attempts, worker, first_failed_at, died_at,
    state
FROM readers.dead_letters
WHERE dead_letter_id = :id;

-- name: redrive!
-- Open letters become parked records again, attempts 0, for the reader that failed them and no other. What another
-- redrive holds at this moment is left to it, so two at once move nothing twice.
WITH chosen AS (
    SELECT dead_letter_id FROM readers.dead_letters
    WHERE dead_letter_id = ANY(:ids) AND state = 'open'
    ORDER BY dead_letter_id
    FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE readers.dead_letters AS d SET state = 'redriven'
    FROM chosen WHERE d.dead_letter_id = chosen.dead_letter_id
    RETURNING d.*
)
INSERT INTO readers.parked (
    reader, lane, lane_hash, version, topic, partition, "offset", "timestamp", key, value, header_names, header_values,
    event_id, next_attempt_at
)
SELECT reader, lane, lane_hash, CASE WHEN lane = document_id THEN version ELSE 0 END, topic, partition, "offset",
    "timestamp", key, value, header_names, header_values, event_id, clock_timestamp()
FROM moved
ON CONFLICT (reader, topic, partition, "offset") DO NOTHING;

-- name: discard!
UPDATE readers.dead_letters SET state = 'discarded' WHERE dead_letter_id = ANY(:ids) AND state = 'open';
