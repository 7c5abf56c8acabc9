-- name: note_shadow!
-- A table of a replay's shadow, and whether it holds counters, which no merge can add up.
INSERT INTO ops.replay_tables AS t (run, name, key, shared, counts) VALUES (:run, :name, :key, :shared, :counts)
ON CONFLICT (run, name) DO UPDATE SET counts = t.counts OR excluded.counts;
