-- The whole schema. `app` is what callers write, `readers` what readers make of it.

CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA app;
CREATE SCHEMA readers;

-- ---------------------------------------------------------------------------------------------------------- app

CREATE TABLE app.documents (
    document_id text PRIMARY KEY,
    owner_id    text NOT NULL,
    title       text NOT NULL,
    body        text NOT NULL,
    version     bigint NOT NULL CHECK (version > 0),
    saved_at    timestamptz NOT NULL,
    deleted_at  timestamptz
);
CREATE INDEX documents_owner ON app.documents (owner_id) WHERE deleted_at IS NULL;

CREATE TABLE app.saved_queries (
    query_id   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    owner_id   text NOT NULL,
    query      text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (owner_id, query)
);

-- One answer a key: the same request again gets it again, another request under the key is refused.
CREATE TABLE app.idempotency_keys (
    key          text PRIMARY KEY,
    request_hash bytea NOT NULL,
    event_id     uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A job is one save of one version. Its state is derived from readers.*, never stored.
CREATE TABLE app.jobs (
    event_id    uuid PRIMARY KEY,
    document_id text NOT NULL,
    version     bigint NOT NULL,
    saved_at    timestamptz NOT NULL,
    UNIQUE (document_id, version)
);

-- The topics that exist. An outbox row for an absent topic would hang the relay for everyone.
CREATE TABLE app.topics (name text PRIMARY KEY);

CREATE TABLE app.outbox (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id    uuid NOT NULL,
    topic       text NOT NULL REFERENCES app.topics (name),
    message_key text NOT NULL,
    event_type  text NOT NULL,
    -- NULL would become a tombstone; 6 bytes is the least frame; over 6 MiB the broker would refuse the record.
    payload     bytea NOT NULL CHECK (octet_length(payload) BETWEEN 6 AND 6291456),
    traceparent text,
    -- clock_timestamp(), not now(): the row is made after the document's lock, so later versions get later times.
    -- Without zone and to the millisecond: the router reads exactly that as the record's time.
    created_at  timestamp(3) NOT NULL DEFAULT (clock_timestamp() AT TIME ZONE 'utc')
);
CREATE INDEX outbox_created_at ON app.outbox (created_at);

-- How far the log of changes had come when, so that old outbox rows are deleted only once the slot is past them.
CREATE TABLE app.outbox_marks (
    seq         bigint PRIMARY KEY,
    wal_lsn     pg_lsn NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- ------------------------------------------------------------------------------------------------------ readers

CREATE TABLE readers.registered (
    reader     text PRIMARY KEY,
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A pass is one reading of the log by one reader; the commit's metadata names it.
CREATE SEQUENCE readers.pass_number;

CREATE TABLE readers.progress (
    reader          text NOT NULL,
    document_id     text NOT NULL,
    version         bigint NOT NULL,
    state           text NOT NULL CHECK (state IN ('done', 'retrying', 'dead', 'expired')),
    applied_version bigint,
    -- Every version whose effects were applied: tells a job that was done from one that was overtaken.
    completed       int8multirange NOT NULL DEFAULT '{}',
    pass            bigint NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    error           text,
    event_id        uuid,
    next_attempt_at timestamptz,
    finished_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (reader, document_id)
) WITH (fillfactor = 80);

-- Raised at each assignment; every batch transaction checks it, so a worker that lost its partition writes nothing.
CREATE TABLE readers.owners (
    reader    text NOT NULL,
    topic     text NOT NULL,
    partition integer NOT NULL,
    epoch     bigint NOT NULL,
    worker    text NOT NULL,
    PRIMARY KEY (reader, topic, partition)
);

CREATE TABLE readers.dead_letters (
    dead_letter_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reader          text NOT NULL,
    topic           text NOT NULL,
    partition       integer NOT NULL,
    "offset"        bigint NOT NULL,
    "timestamp"     timestamptz NOT NULL,
    key             bytea,
    value           bytea,
    header_names    text[] NOT NULL,
    header_values   bytea[] NOT NULL,
    event_id        uuid,
    document_id     text,
    version         bigint,
    error_class     text NOT NULL,
    error_message   text NOT NULL,
    traceback       text NOT NULL,
    attempts        integer NOT NULL,
    worker          text NOT NULL,
    first_failed_at timestamptz NOT NULL,
    died_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    state           text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'redriven', 'resolved', 'discarded', 'superseded')),
    UNIQUE (reader, topic, partition, "offset")
);
CREATE INDEX dead_letters_event ON readers.dead_letters (event_id) WHERE state = 'open';

-- The table of every reader that has none of its own.
CREATE TABLE readers.output (
    reader      text NOT NULL,
    key         text NOT NULL,
    document_id text,   -- NULL for a counter, which many documents share
    version     bigint,
    value       jsonb NOT NULL,
    PRIMARY KEY (reader, key)
);
CREATE INDEX output_document ON readers.output (reader, document_id);

CREATE TABLE readers.summaries (
    document_id text PRIMARY KEY,
    version     bigint NOT NULL,
    summary     text NOT NULL,
    model       text NOT NULL,
    tokens      integer NOT NULL DEFAULT 0
);

CREATE TABLE readers.scores (
    document_id   text NOT NULL,
    query_id      uuid NOT NULL,
    model_version text NOT NULL,
    version       bigint NOT NULL,
    score         double precision NOT NULL,
    PRIMARY KEY (document_id, query_id, model_version)
);
CREATE INDEX scores_best ON readers.scores (query_id, model_version, score DESC);

CREATE TABLE readers.search_index (
    document_id text PRIMARY KEY,
    version     bigint NOT NULL,
    owner_id    text NOT NULL,
    title       text NOT NULL,
    content     text NOT NULL,
    truncated   boolean NOT NULL,  -- whether the content was cut to fit a tsvector
    words       tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('english', content)) STORED,
    embedding   vector(256) NOT NULL
);
CREATE INDEX search_words ON readers.search_index USING gin (words);
CREATE INDEX search_embedding ON readers.search_index USING hnsw (embedding vector_cosine_ops);
