-- What Idem keeps in MySQL or MariaDB. `idem migrate` runs the parts that are missing; a part begins
-- at a line with --@ and the version that it leads to, and is never changed once it has been released:
-- a later version is a part of its own. Times are UTC.

--@ 1
-- One row: which version this is, and who removes what has expired.
CREATE TABLE IF NOT EXISTS idem_meta (
    one          TINYINT NOT NULL PRIMARY KEY CHECK (one = 1),
    version      INT NOT NULL,
    sweeper      BINARY(16),
    sweep_until  DATETIME(3),
    sweep_table  SMALLINT, -- where it stands
    sweep_prefix VARBINARY(128),
    sweep_hash   BINARY(32)
) ENGINE=InnoDB;

-- The stores' records, one of each key. No index but the primary key's, which is where the row is.
CREATE TABLE IF NOT EXISTS idem_record (
    prefix            VARBINARY(128) NOT NULL, -- names the policy
    hash              BINARY(32) NOT NULL, -- SHA-256 of kind, scope and key
    revision          BIGINT NOT NULL, -- random, another one with each change
    format            SMALLINT NOT NULL,
    state             SMALLINT NOT NULL, -- 1 issued, 2 running, 3 done, 4 failed
    flags             SMALLINT NOT NULL, -- 1 lock, 2 kept, 4 final, 8 released
    attempt           BIGINT NOT NULL,
    tries             BIGINT NOT NULL,
    owner             BINARY(16) NOT NULL,
    definition        BIGINT NOT NULL, -- of the fingerprint; 0: there is none
    fingerprint       BINARY(32),
    bind              BINARY(32),
    lease_end         DATETIME(3), -- of a failed one: when it may be tried again
    expires           DATETIME(3) NOT NULL,
    created           DATETIME(3) NOT NULL,
    changed           DATETIME(3) NOT NULL,
    status            INT NOT NULL,
    prior_state       SMALLINT, -- while it runs: what it was claimed from
    prior_tries       BIGINT,
    prior_due         DATETIME(3),
    prior_expires     DATETIME(3),
    prior_definition  BIGINT,
    prior_fingerprint BINARY(32),
    label             VARBINARY(256),
    reason            VARBINARY(1024),
    result            LONGBLOB,
    PRIMARY KEY (prefix, hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Nonces and counters.
CREATE TABLE IF NOT EXISTS idem_counter (
    prefix   VARBINARY(128) NOT NULL,
    hash     BINARY(32) NOT NULL,
    revision BIGINT NOT NULL,
    value    BIGINT NOT NULL,
    expires  DATETIME(3) NOT NULL,
    PRIMARY KEY (prefix, hash)
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS idem_event (
    name VARBINARY(64) NOT NULL PRIMARY KEY,
    n    BIGINT NOT NULL
) ENGINE=InnoDB;

-- What was done within somebody's own transaction.
CREATE TABLE IF NOT EXISTS idem_tx (
    prefix      VARBINARY(128) NOT NULL,
    hash        BINARY(32) NOT NULL,
    definition  BIGINT NOT NULL,
    fingerprint BINARY(32),
    status      INT NOT NULL,
    result      LONGBLOB,
    created     DATETIME(3) NOT NULL,
    expires     DATETIME(3) NOT NULL,
    PRIMARY KEY (prefix, hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO idem_meta (one, version) VALUES (1, 1);
