-- What operators see over time: lag as it was, and what was done to it.

CREATE SCHEMA ops;

-- One group at one time. The arrays go together, one element a partition; NULL is unknown, as everywhere.
CREATE TABLE ops.lag_samples (
    group_name          text NOT NULL,
    taken_at            timestamptz NOT NULL,
    expires_at          timestamptz NOT NULL,  -- the older, the fewer are kept: see streams/ops/sql/lag.sql
    members             integer,
    lag_records         bigint,                -- in offsets, as Kafka's tools count
    age_seconds         double precision,
    backlog_records     double precision,      -- without markers and gaps
    rate_in_per_second  double precision,
    rate_out_per_second double precision,
    capacity_per_second double precision,      -- what was done while work waited all the time
    drain_seconds       double precision,
    shape               text,
    health              text,
    topics              text[] NOT NULL,
    partitions          integer[] NOT NULL,
    committed           bigint[] NOT NULL,
    log_ends            bigint[] NOT NULL,
    lags                bigint[] NOT NULL,
    arrived             double precision[] NOT NULL,  -- records since the series began
    done                double precision[] NOT NULL,
    backlogs            double precision[] NOT NULL,
    PRIMARY KEY (group_name, taken_at)
);
CREATE INDEX lag_samples_taken_at ON ops.lag_samples (taken_at);
CREATE INDEX lag_samples_expires_at ON ops.lag_samples (expires_at);

-- What somebody did that a chart of lag should show: a replay, a redrive, chaos.
CREATE TABLE ops.marks (
    mark_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text NOT NULL,
    group_name text,  -- NULL: it concerns all
    text       text NOT NULL
);
CREATE INDEX marks_at ON ops.marks (at);
