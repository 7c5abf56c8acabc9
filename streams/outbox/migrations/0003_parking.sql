-- Records that failed and wait, with all that came after them for the same lane: durable, so nothing is lost by a
-- crash, and out of the log's way, so nothing else waits.

CREATE TABLE readers.parked (
    reader          text NOT NULL,
    lane            text NOT NULL COLLATE "C",  -- what runs in order: a document, or a partition
    version         bigint NOT NULL,            -- a lane runs by version, then by place in the log
    topic           text NOT NULL,
    partition       integer NOT NULL,
    "offset"        bigint NOT NULL,
    lane_hash       integer NOT NULL CHECK (lane_hash >= 0), -- modulo the topic's partitions: who tries it again
    "timestamp"     timestamptz NOT NULL,
    key             bytea,
    value           bytea,
    header_names    text[] NOT NULL,
    header_values   bytea[] NOT NULL,
    event_id        uuid,
    attempts        integer NOT NULL DEFAULT 0,
    error           text,
    first_failed_at timestamptz,
    next_attempt_at timestamptz,  -- NULL: behind another of its lane
    runs            integer NOT NULL DEFAULT 0, -- begun since the last that ended: those during which a worker died
    parked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (reader, lane, version, partition, "offset", topic),
    UNIQUE (reader, topic, partition, "offset")
);
CREATE INDEX parked_due ON readers.parked (reader, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX parked_event ON readers.parked (event_id);

-- What a partition's owner leaves for the next one, should it die: see streams/core/suspicion.py.
ALTER TABLE readers.owners ADD COLUMN received_to bigint, ADD COLUMN died_from bigint, ADD COLUMN died_to bigint;

-- A record that dies again after a redrive must be found by its place, as must one that a replay finishes.
CREATE INDEX dead_letters_open ON readers.dead_letters (reader, topic, partition, "offset") WHERE state IN ('open', 'redriven');
CREATE INDEX dead_letters_listed ON readers.dead_letters (reader, state, died_at);

-- What a redrive needs to park the record again.
ALTER TABLE readers.dead_letters ADD COLUMN lane text NOT NULL COLLATE "C", ADD COLUMN lane_hash integer NOT NULL;
DROP INDEX readers.dead_letters_event;
CREATE INDEX dead_letters_event ON readers.dead_letters (event_id) WHERE state IN ('open', 'redriven');
