-- What one process asks the servers again and again, so that a scrape of the metrics asks none of them.

CREATE TABLE ops.probes (
    name     text PRIMARY KEY,      -- a server, a part of the relay, or canary
    taken_at timestamptz NOT NULL,
    state    text,                  -- up or down; of the relay's parts Connect's words; NULL is unknown
    seconds  double precision,      -- of the canary: from commit to consumer
    since    timestamptz            -- of the canary: when the first of those was sent that did not come; NULL if it came
);
