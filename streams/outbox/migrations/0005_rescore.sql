-- Scoring all documents again with one model: a run, its chunks, and the documents that could not be scored.

CREATE TABLE ops.rescores (
    run_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model         text NOT NULL,         -- the scorer's name
    model_version text NOT NULL,         -- the scores' key
    as_of         timestamptz NOT NULL,  -- documents saved later are the ranker's
    began_at      timestamptz NOT NULL,  -- or was resumed: its rate is measured from here on
    deadline_at   timestamptz,
    cancelled_at  timestamptz
);

-- A chunk is done, or still to do; whether it failed stands in readers.progress, under <run_id>/<chunk>.
CREATE TABLE ops.rescore_chunks (
    run_id    bigint NOT NULL REFERENCES ops.rescores,
    chunk     integer NOT NULL,
    event_id  uuid NOT NULL DEFAULT gen_random_uuid(),  -- the same however often it is sent
    after_id  text NOT NULL,  -- its documents come after this one,
    last_id   text NOT NULL,  -- up to this one
    documents integer NOT NULL,
    sent      bigint NOT NULL DEFAULT 1,
    done_at   timestamptz,
    worker    text,
    seconds   double precision,  -- that its documents took
    scored    integer NOT NULL DEFAULT 0,
    failed    integer NOT NULL DEFAULT 0,
    scores    integer NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, chunk)
);

CREATE TABLE ops.rescore_errors (
    run_id      bigint NOT NULL,
    chunk       integer NOT NULL,
    document_id text NOT NULL,
    version     bigint NOT NULL,
    error       text NOT NULL,
    PRIMARY KEY (run_id, document_id),
    FOREIGN KEY (run_id, chunk) REFERENCES ops.rescore_chunks
);
