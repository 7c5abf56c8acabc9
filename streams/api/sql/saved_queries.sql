-- The saved queries that an owner's documents are scored against. Called by streams/api/saved_queries.py.

-- name: save_query^
-- The same query twice is the same query: the update changes nothing, it makes the row come back.
INSERT INTO app.saved_queries AS q (owner_id, query)
VALUES (:owner_id, :query)
ON CONFLICT (owner_id, query) DO UPDATE SET query = q.query
RETURNING query_id, owner_id, query, created_at, old.query_id IS NULL AS is_new;

-- name: saved_queries
SELECT query_id, owner_id, query, created_at
FROM app.saved_queries
WHERE owner_id = :owner_id
ORDER BY created_at, query_id;

-- name: delete_query!
DELETE FROM app.saved_queries WHERE query_id = :query_id;
