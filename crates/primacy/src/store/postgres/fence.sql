-- The fence of primacy: the highest token ever granted of each election. Run it again as often as you like, also at once with
-- others: the lock, and a look into the catalog after it, let each see what the one before it has made.
DO $fence$ BEGIN
PERFORM {pg_advisory_xact_lock}(1886547299);
PERFORM 1 FROM {pg_class} LIMIT 1;
CREATE TABLE IF NOT EXISTS {}.primacy_token (
    election {text} COLLATE pg_catalog."C" PRIMARY KEY,
    token    bigint NOT NULL CHECK (token {>} 0),
    guard    bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- SELECT {}.primacy_fence('billing', 42): in your transaction, before or after your writes. It returns the token and
-- holds the fence until the transaction ends, or it raises SQLSTATE PR001 (stale) or PR002 (no such election)
-- and nothing can be committed. A client that
-- rests inside the transaction, leaves a result unread, or waits for a lock, for longer than within_ms loses it.
-- In its body no name depends on the search path of the caller.
CREATE OR REPLACE FUNCTION {}.primacy_fence(election {text}, token bigint, within_ms integer DEFAULT 10000)
RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $primacy$
#variable_conflict use_column
DECLARE
    highest bigint;
    setting text;
BEGIN
    IF octet_length($1) NOT BETWEEN 1 AND 128 OR NOT $2 >= 1 OR NOT $3 >= 1 OR num_nulls($1, $2, $3) > 0 THEN
        RAISE EXCEPTION 'primacy_fence needs an election, a token that was granted, and a time of at least 1 ms'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH setting IN ARRAY ARRAY['lock_timeout', 'idle_in_transaction_session_timeout'] LOOP
        IF current_setting(setting)::interval NOT BETWEEN '1 ms' AND $3 * interval '1 ms' THEN
            PERFORM set_config(setting, $3::text, true);
        END IF;
    END LOOP;
    -- For a client that is stopped while it receives a result.
    PERFORM set_config('tcp_user_timeout', $3::text, true);
    FOR attempt IN 1..3 LOOP
        SELECT t.token INTO highest FROM {}.primacy_token t WHERE t.election = $1 AND t.token >= $2 FOR SHARE;
        IF highest > $2 THEN
            RAISE EXCEPTION 'token % of the election "%" is stale: % has been granted', $2, $1, highest
                USING ERRCODE = 'PR001', HINT = 'Another leader is in charge. Roll back and stop.';
        END IF;
        IF highest = $2 THEN
            RETURN highest;
        END IF;
        -- A store that has never granted this election does not learn of it here.
        IF to_regclass('{}.primacy_schema') IS NOT NULL
            AND NOT EXISTS (SELECT FROM {}.primacy_token t WHERE t.election = $1) THEN
            RAISE EXCEPTION 'the store in this database knows no election "%"', $1
                USING ERRCODE = 'PR002', HINT = 'Is it misspelled? A store fences the elections that it has granted.';
        END IF;
        -- Only in a database that sees this token for the first time.
        INSERT INTO {}.primacy_token AS t (election, token) VALUES ($1, $2)
            ON CONFLICT (election) DO UPDATE SET token = excluded.token WHERE t.token < excluded.token;
    END LOOP;
    RAISE EXCEPTION 'the row of the fence is deleted again and again' USING ERRCODE = 'serialization_failure';
END
$primacy$;
END $fence$;

-- The rights that a program needs for it (replace the name). In the store's own database:
-- GRANT USAGE ON SCHEMA {} TO "app"; GRANT SELECT, UPDATE (guard) ON {}.primacy_token TO "app";
-- In any other, which learns of each new leadership from the program:
-- GRANT USAGE ON SCHEMA {} TO "app"; GRANT SELECT, INSERT, UPDATE ON {}.primacy_token TO "app";
