-- name: resolve!
-- Events that were dead letters and are done now: in a replay, or emitted again at another place in the log.
UPDATE readers.dead_letters SET state = 'resolved'
WHERE reader = :reader AND event_id = ANY(:event_ids::uuid[]) AND state IN ('open', 'redriven');

-- name: close_letters!
-- The same by place, for records without an event's id, and for redriven ones, which may be overtaken too.
UPDATE readers.dead_letters AS d SET state = given.state
FROM unnest(:topics::text[], :partitions::int[], :offsets::bigint[], :states::text[])
    AS given (topic, partition, "offset", state)
WHERE d.reader = :reader AND d.topic = given.topic AND d.partition = given.partition AND d."offset" = given."offset"
    AND d.state IN ('open', 'redriven');

-- name: bury^
-- Keep a dead letter, or open it again after a redrive; no row comes back where it is open already.
INSERT INTO readers.dead_letters AS d (
    reader, topic, partition, "offset", "timestamp", key, value, header_names, header_values, event_id, document_id,
    version, lane, lane_hash, error_class, error_message, traceback, attempts, worker, first_failed_at, died_at
) VALUES (
    :reader, :topic, :partition, :offset, :timestamp, :key, :value, :header_names, :header_values, :event_id,
    :document_id, :version, :lane, :lane_hash, :error_class, :error_message, :traceback, :attempts, :worker,
    :first_failed_at, :died_at
)
ON CONFLICT (reader, topic, partition, "offset") DO UPDATE SET
    state = 'open', error_class = excluded.error_class, error_message = excluded.error_message,
    traceback = excluded.traceback, attempts = excluded.attempts, worker = excluded.worker,
    first_failed_at = excluded.first_failed_at, died_at = excluded.died_at
WHERE d.state <> 'open'
RETURNING dead_letter_id;

-- name: emit!
-- Send the dead letter on its way: the relay carries it to the reader's dead-letter topic.
INSERT INTO app.outbox (event_id, topic, message_key, event_type, payload)
VALUES (gen_random_uuid(), :topic, :message_key, 'dead-letter', :payload);
