-- What Idem keeps in PostgreSQL. `idem migrate` runs the parts that are missing, each in one
-- transaction; a part begins at a line with -- @ and the version that it leads to, and is never
-- changed once it has been released: a later version is a part of its own.

-- @ 1
-- One row: which version this is, the oldest whose programs may use it, and who removes what has expired.
CREATE TABLE idem_meta (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    version      integer NOT NULL,
    oldest       integer NOT NULL,
    sweeper      bytea,
    sweep_until  timestamptz,
    sweep_table  smallint, -- where it stands
    sweep_prefix bytea,
    sweep_hash   bytea
);

-- The stores' records, one of each key. All that an update changes is outside of every index, and
-- there is room for it on the page.
CREATE TABLE idem_record (
    prefix            bytea NOT NULL, -- names the policy
    hash              bytea NOT NULL, -- SHA-256 of kind, scope and key
    revision          bigint NOT NULL, -- random, another one with each change
    format            smallint NOT NULL,
    state             smallint NOT NULL, -- 1 issued, 2 running, 3 done, 4 failed
    flags             smallint NOT NULL, -- 1 lock, 2 kept, 4 final, 8 released
    attempt           bigint NOT NULL,
    tries             bigint NOT NULL,
    owner             bytea NOT NULL,
    definition        bigint NOT NULL, -- of the fingerprint; 0: there is none
    fingerprint       bytea,
    bind              bytea,
    lease_end         timestamptz, -- of a failed one: when it may be tried again
    expires           timestamptz NOT NULL,
    created           timestamptz NOT NULL,
    changed           timestamptz NOT NULL,
    waited            timestamptz, -- somebody waits for it until then
    status            integer NOT NULL,
    prior_state       smallint, -- while it runs: what it was claimed from
    prior_tries       bigint,
    prior_due         timestamptz,
    prior_expires     timestamptz,
    prior_definition  bigint,
    prior_fingerprint bytea,
    label             bytea,
    reason            bytea,
    result            bytea,
    PRIMARY KEY (prefix, hash)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- Nonces and counters.
CREATE TABLE idem_counter (
    prefix   bytea NOT NULL,
    hash     bytea NOT NULL,
    revision bigint NOT NULL,
    value    bigint NOT NULL,
    expires  timestamptz NOT NULL,
    PRIMARY KEY (prefix, hash)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE idem_event (
    name text PRIMARY KEY,
    n    bigint NOT NULL
) WITH (fillfactor = 50);

-- What was done within somebody's own transaction.
CREATE TABLE idem_tx (
    prefix      bytea NOT NULL,
    hash        bytea NOT NULL,
    definition  bigint NOT NULL,
    fingerprint bytea,
    status      integer, -- until it was said, NULL
    result      bytea,
    created     timestamptz NOT NULL,
    expires     timestamptz NOT NULL,
    PRIMARY KEY (prefix, hash)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);

-- The guard for every language: SELECT * FROM idem_once(...) as the first statement of a transaction,
-- idem_result(...) before its end. Names are made as everywhere: SHA-256 of the kind, and of scope and
-- key, each behind its length; a scope that is NULL is scope none.
CREATE FUNCTION idem_name(scope text, key text) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE AS $idem$
DECLARE
    s bytea := convert_to(scope, 'UTF8');
    k bytea := convert_to(key, 'UTF8');
BEGIN
    IF k IS NULL OR length(k) NOT BETWEEN 1 AND 4096 OR length(s) NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION 'idem: a key has 1 to 4096 bytes, and so has a scope that is not NULL'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- without a backslash, which standard_conforming_strings = off takes for another thing
    RETURN sha256(decode('01', 'hex') || decode(CASE WHEN s IS NULL THEN '00' ELSE '01' END, 'hex')
                  || int4send(coalesce(length(s), 0)) || coalesce(s, '') || int4send(length(k)) || k);
END
$idem$;

CREATE FUNCTION idem_once(prefix text, scope text, key text, fingerprint text DEFAULT NULL,
                          ttl interval DEFAULT interval '1 day',
                          OUT outcome text, OUT status integer, OUT result bytea)
    LANGUAGE plpgsql AS $idem$
#variable_conflict use_column
DECLARE
    p bytea := convert_to($1, 'UTF8');
    h bytea := idem_name($2, $3);
    f bytea := sha256(convert_to($4, 'UTF8'));
    d bigint := CASE WHEN f IS NULL THEN 0 ELSE 1 END;
    t idem_tx;
BEGIN
    IF p IS NULL OR length(p) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'idem: a prefix has 1 to 128 bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF $5 IS NULL OR $5 < interval '1 second' THEN
        RAISE EXCEPTION 'idem: a row is remembered for a second at least'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR i IN 1..3 LOOP
        INSERT INTO idem_tx (prefix, hash, definition, fingerprint, created, expires)
            VALUES (p, h, d, f, clock_timestamp(), clock_timestamp() + $5) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT * INTO t FROM idem_tx WHERE prefix = p AND hash = h;
            CONTINUE WHEN NOT FOUND;
            IF t.expires > clock_timestamp() THEN
                outcome := 'duplicate';
                IF t.definition = d AND t.fingerprint <> f THEN
                    outcome := 'mismatch';
                ELSE
                    status := coalesce(t.status, 0);
                    result := t.result;
                END IF;
                RETURN;
            END IF;
            UPDATE idem_tx SET definition = d, fingerprint = f, status = NULL, result = NULL,
                    created = clock_timestamp(), expires = clock_timestamp() + $5
                WHERE prefix = p AND hash = h AND expires <= clock_timestamp();
            CONTINUE WHEN NOT FOUND;
        END IF;
        outcome := 'first';
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'idem: the row of this key comes and goes: begin anew'
        USING ERRCODE = 'serialization_failure';
END
$idem$;

CREATE FUNCTION idem_result(prefix text, scope text, key text, status integer,
                            result bytea DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql AS $idem$
#variable_conflict use_column
DECLARE
    p bytea := convert_to($1, 'UTF8');
    h bytea := idem_name($2, $3);
BEGIN
    UPDATE idem_tx SET status = coalesce($4, 0), result = $5
        WHERE prefix = p AND hash = h AND status IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'idem: there is no row of this key that waits for its result'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$idem$;

INSERT INTO idem_meta (version, oldest) VALUES (1, 1);
