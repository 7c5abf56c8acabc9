-- What `streams run` adds to its metrics from the tables.

-- name: open_work
-- Parked records and open dead letters of each of the readers.
SELECT reader,
    (SELECT count(*) FROM readers.parked AS p WHERE p.reader = r.reader),
    (SELECT count(*) FROM readers.dead_letters AS d WHERE d.reader = r.reader AND d.state = 'open')
FROM unnest(:readers::text[]) AS r (reader);
