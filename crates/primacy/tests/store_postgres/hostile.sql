-- Shadows everything of pg_catalog that ordinary SQL can create, in a schema that comes first in a search path. Whatever
-- is called writes SHADOW to the server's log, since an error alone may be caught, and then fails.
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.used(what pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE LOG 'SHADOW %', what;
    RAISE EXCEPTION 'SHADOW %', what;
END $$;

DO $do$
DECLARE
    body CONSTANT text := 'LANGUAGE plpgsql AS $b$BEGIN PERFORM hostile.used(%L); RETURN NULL; END$b$';
    made integer := 0;
    thing record;
    types text;
BEGIN
    -- Functions, with the argument types of the originals; set-returning ones as functions that return one.
    FOR thing IN
        SELECT p.proname AS name, oidvectortypes(p.proargtypes) AS types, format_type(p.prorettype, NULL) AS result
        FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind IN ('f', 'w')
            AND p.prorettype NOT IN ('internal'::regtype, 'trigger'::regtype, 'cstring'::regtype)
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s ' || replace(body, 'RETURN NULL; ', ''),
                thing.name, thing.types, thing.result, thing.name || '()');
            made := made + 1;
        EXCEPTION WHEN others THEN
            NULL;
        END;
    END LOOP;
    -- Those that take any type, with types of their own: they match better.
    FOR thing IN
        SELECT DISTINCT p.proname AS name, format_type(p.prorettype, NULL) AS result FROM pg_proc AS p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
            AND '"any"'::regtype = ANY (p.proargtypes::oid[])
    LOOP
        FOREACH types IN ARRAY ARRAY['text', 'text, text', 'text, text, text', 'text, text, text, text', 'text, bigint',
            'text, bigint, integer', 'integer', 'bigint', 'bytea', 'text, text, text, name', 'text, text, text, text, name']
        LOOP
            BEGIN
                EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s ' || replace(body, 'RETURN NULL; ', ''),
                    thing.name, types, thing.result, thing.name || '()');
                made := made + 1;
            EXCEPTION WHEN others THEN
                NULL;
            END;
        END LOOP;
    END LOOP;
    -- Aggregates.
    FOR thing IN
        SELECT row_number() OVER () AS number, a.name, a.types FROM (
            SELECT p.proname AS name, oidvectortypes(p.proargtypes) AS types FROM pg_proc AS p
            WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'a' AND p.pronargs > 0
            UNION ALL SELECT 'count', t FROM unnest(ARRAY['text', 'bytea', 'integer', 'bigint', 'oid']) AS t
            UNION ALL SELECT 'count', '*') AS a
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION hostile.%I(bigint%s) RETURNS bigint ' || body, 'step_' || thing.number,
                CASE WHEN thing.types = '*' THEN '' ELSE ', ' || thing.types END, thing.name || '(aggregate)');
            EXECUTE format('CREATE AGGREGATE hostile.%I(%s) (SFUNC = hostile.%I, STYPE = bigint)', thing.name,
                thing.types, 'step_' || thing.number);
            made := made + 1;
        EXCEPTION WHEN others THEN
            NULL;
        END;
    END LOOP;
    -- Operators: those that there are, and others between common types, which match better than a conversion.
    FOR thing IN
        SELECT row_number() OVER () AS number, o.* FROM (
            SELECT p.oprname AS name, format_type(p.oprleft, NULL) AS a, format_type(p.oprright, NULL) AS b,
                format_type(p.oprresult, NULL) AS result
            FROM pg_operator AS p WHERE p.oprnamespace = 'pg_catalog'::regnamespace AND p.oprkind = 'b'
            UNION ALL
            SELECT n, a, b, CASE WHEN n IN ('=', '<>', '<', '>', '<=', '>=') THEN 'boolean' ELSE a END
            FROM unnest(ARRAY['=', '<>', '<', '>', '<=', '>=', '+', '-', '*', '/', '||', '&', '<<', '>>']) AS n,
                unnest(ARRAY['integer', 'bigint', 'numeric', 'double precision', 'interval', 'text', 'bytea', 'name']) AS a,
                unnest(ARRAY['integer', 'bigint', 'numeric', 'double precision', 'interval', 'text', 'bytea', 'name']) AS b
        ) AS o
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION hostile.%I(%s, %s) RETURNS %s ' || body, 'operator_' || thing.number, thing.a,
                thing.b, thing.result, thing.a || ' ' || thing.name || ' ' || thing.b);
            EXECUTE format('CREATE OPERATOR hostile.%s (FUNCTION = hostile.%I, LEFTARG = %s, RIGHTARG = %s)', thing.name,
                'operator_' || thing.number, thing.a, thing.b);
            made := made + 1;
        EXCEPTION WHEN others THEN
            NULL;
        END;
    END LOOP;
    -- Types, and the relations of the catalog.
    FOR thing IN
        SELECT t.typname AS name FROM pg_type AS t
        WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typelem = 0
    LOOP
        EXECUTE format('CREATE DOMAIN hostile.%I AS pg_catalog.%I CHECK (hostile.used(%L))', thing.name, thing.name,
            'type ' || thing.name);
        made := made + 1;
    END LOOP;
    FOR thing IN
        SELECT c.relname AS name FROM pg_class AS c
        WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
    LOOP
        BEGIN
            EXECUTE format('CREATE VIEW hostile.%I AS SELECT c.* FROM pg_catalog.%I AS c WHERE hostile.used(%L)',
                thing.name, thing.name, 'relation ' || thing.name);
            made := made + 1;
        EXCEPTION WHEN others THEN
            NULL;
        END;
    END LOOP;
    IF made < 4000 THEN
        RAISE EXCEPTION 'only % shadows could be made', made;
    END IF;
    RAISE NOTICE '% shadows', made;
END $do$;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA hostile TO PUBLIC;
