-- What Idem keeps in PostgreSQL. `idem migrate` runs the parts that are missing, each in one
-- transaction; a part begins at a line with --@ and the version that it leads to, and is never
-- changed once it has been released: a later version is a part of its own.

--@ 1
-- One row: which version this is, and who removes what has expired.
CREATE TABLE idem_meta (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    version      integer NOT NULL,
    sweeper      bytea,
    sweep_until  timestamptz,
    sweep_table  smallint, -- where it stands
    sweep_prefix bytea,
    sweep_hash   bytea
);

-- The stores' records, one of each key. All that an update changes is outside of every index, and
-- there is room for it on the page.
CREATE TABLE idem_record (
    prefix            bytea NOT NULL CHECK (length(prefix) BETWEEN 1 AND 128), -- names the policy
    hash              bytea NOT NULL CHECK (length(hash) = 32), -- SHA-256 of kind, scope and key
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
    prefix   bytea NOT NULL CHECK (length(prefix) BETWEEN 1 AND 128),
    hash     bytea NOT NULL CHECK (length(hash) = 32),
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
    prefix      bytea NOT NULL CHECK (length(prefix) BETWEEN 1 AND 128),
    hash        bytea NOT NULL CHECK (length(hash) = 32),
    definition  bigint NOT NULL,
    fingerprint bytea,
    status      integer NOT NULL,
    result      bytea,
    created     timestamptz NOT NULL,
    expires     timestamptz NOT NULL,
    PRIMARY KEY (prefix, hash)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);

INSERT INTO idem_meta (version) VALUES (1);
