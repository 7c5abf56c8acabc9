-- Outbox rows that the broker would not take, set aside by `streams outbox skip`: out of the relay's way, not lost.
CREATE TABLE app.outbox_skipped (
    seq         bigint PRIMARY KEY,
    event_id    uuid NOT NULL,
    topic       text NOT NULL,
    message_key text NOT NULL,
    event_type  text NOT NULL,
    payload     bytea,
    traceparent text,
    created_at  timestamp(3) NOT NULL,
    skipped_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
