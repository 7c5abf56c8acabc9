-- name: finish_chunk!
-- All of a chunk: its documents are held still at the version that was scored; those that were saved again or deleted
-- meanwhile are left to the ranker. Of each that was scored, the model's scores become these and no others.
WITH given AS (
    SELECT document_id, version, error
    FROM unnest(%(document_ids)s::text[], %(versions)s::bigint[], %(errors)s::text[]) AS g (document_id, version, error)
), held AS (
    SELECT d.document_id, d.version, given.error
    FROM app.documents AS d
    JOIN given USING (document_id, version)
    WHERE d.deleted_at IS NULL
    ORDER BY d.document_id
    FOR SHARE OF d
), score AS (
    SELECT held.document_id, held.version, s.query_id, s.score
    FROM unnest(%(scored_ids)s::text[], %(query_ids)s::uuid[], %(scores)s::double precision[])
        AS s (document_id, query_id, score)
    JOIN held USING (document_id)
), gone AS (
    DELETE FROM readers.scores AS old
    USING held
    WHERE held.error IS NULL AND old.document_id = held.document_id AND old.model_version = %(model_version)s
        AND NOT EXISTS (SELECT FROM score WHERE (score.document_id, score.query_id) = (old.document_id, old.query_id))
), written AS (
    INSERT INTO readers.scores (document_id, query_id, model_version, version, score)
    SELECT document_id, query_id, %(model_version)s, version, score FROM score ORDER BY document_id, query_id
    ON CONFLICT (document_id, query_id, model_version) DO UPDATE SET version = excluded.version, score = excluded.score
    RETURNING 1
), failed AS (
    INSERT INTO ops.rescore_errors (run_id, chunk, document_id, version, error)
    SELECT %(run_id)s, %(chunk)s, document_id, version, error FROM held WHERE error IS NOT NULL
    ON CONFLICT (run_id, document_id) DO UPDATE SET version = excluded.version, error = excluded.error
    RETURNING 1
)
UPDATE ops.rescore_chunks SET
    done_at = clock_timestamp(),
    worker = %(worker)s,
    seconds = %(seconds)s,
    scored = (SELECT count(*) FROM held WHERE error IS NULL),
    failed = (SELECT count(*) FROM failed),
    scores = (SELECT count(*) FROM written)
WHERE run_id = %(run_id)s AND chunk = %(chunk)s;
