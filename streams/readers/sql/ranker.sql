-- name: saved_queries
-- What an owner has saved to be told of. Read for each document: a new query counts from the next save on.
SELECT query_id::text, query
FROM app.saved_queries
WHERE owner_id = :owner_id
ORDER BY query_id;
