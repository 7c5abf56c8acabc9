-- What the polling relay has yet to publish: of these numbers a row may stand in the outbox, or still come. One row.

CREATE TABLE app.outbox_polled (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    waiting int8multirange NOT NULL,
    chosen  boolean NOT NULL DEFAULT false  -- it was given the outbox last, and has it until a repair
);
INSERT INTO app.outbox_polled (waiting) VALUES ('{(,)}');
