-- Bounded replays: what each is to do, and how far it is, so that it goes on after any end of its worker.
-- Its progress, owners, parked records and dead letters stand in readers.* under `reader@run`.

CREATE TABLE ops.replays (
    run             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reader          text NOT NULL,
    topic           text NOT NULL,
    target          text NOT NULL CHECK (target IN ('live', 'shadow')),
    asked_from      text NOT NULL,  -- as it was typed, for people
    asked_to        text NOT NULL,
    since_ms        bigint,         -- records from before it are left out; NULL: none is
    until_ms        bigint,         -- likewise from it on
    whole           boolean NOT NULL,  -- from the log's start, of which retention has taken nothing, to its end
    rate_per_second integer CHECK (rate_per_second > 0),
    external        boolean NOT NULL,  -- whether handlers are told that this is no replay
    state           text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'promoted', 'cancelled')),
    records_about   bigint NOT NULL,   -- in the window, by a sample
    records_read    bigint NOT NULL DEFAULT 0,
    outcomes        jsonb NOT NULL DEFAULT '{}',
    begun_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at         timestamptz,       -- when its worker was last alive
    ended_at        timestamptz,
    promoted_at     timestamptz
);

-- The bounds are fixed at the start. Positions: the first to read, the first not to read any more, the next to read.
CREATE TABLE ops.replay_partitions (
    run           bigint NOT NULL REFERENCES ops.replays ON DELETE CASCADE,
    partition     integer NOT NULL,
    from_position bigint NOT NULL,
    to_position   bigint NOT NULL CHECK (to_position >= from_position),
    position      bigint NOT NULL,
    live_position bigint,  -- what the live reader had committed when the replay was promoted; NULL: nothing
    PRIMARY KEY (run, partition)
);

-- The tables that a shadow has, each a copy of the one of its name in readers; made when an effect first names it.
CREATE TABLE ops.replay_tables (
    run        bigint NOT NULL REFERENCES ops.replays ON DELETE CASCADE,
    name       text NOT NULL,
    key        text[] NOT NULL,
    shared     boolean NOT NULL,
    counts     boolean NOT NULL DEFAULT false,  -- whether an Increment went there
    PRIMARY KEY (run, name)
);
