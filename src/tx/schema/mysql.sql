-- What Idem keeps in MySQL or MariaDB. `idem migrate` runs the parts that are missing; a part begins
-- at a line with -- @ and the version that it leads to, and is never changed once it has been released:
-- a later version is a part of its own. Times are UTC.

-- @ 1
-- One row: which version this is, the oldest whose programs may use it, and who removes what has expired.
CREATE TABLE IF NOT EXISTS idem_meta (
    one          TINYINT NOT NULL PRIMARY KEY CHECK (one = 1),
    version      INT NOT NULL,
    oldest       INT NOT NULL,
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
    status      INT, -- until it was said, NULL
    result      LONGBLOB,
    created     DATETIME(3) NOT NULL,
    expires     DATETIME(3) NOT NULL,
    PRIMARY KEY (prefix, hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- The guard for every language: CALL idem_once(...) as the first statement of a transaction, which gives
-- one row, and CALL idem_result(...) before its end. Names are made as everywhere: SHA-256 of the kind,
-- and of scope and key, each behind its length; a scope that is NULL is scope none.
DROP PROCEDURE IF EXISTS idem_once_for;
DROP PROCEDURE IF EXISTS idem_once;
DROP PROCEDURE IF EXISTS idem_result;

DELIMITER //
CREATE PROCEDURE idem_once_for(IN p_prefix LONGBLOB, IN p_scope LONGBLOB,
                               IN p_key LONGBLOB, IN p_fingerprint LONGBLOB, IN p_ttl_s BIGINT)
    MODIFIES SQL DATA SQL SECURITY INVOKER
this: BEGIN
    DECLARE v_hash BINARY(32) DEFAULT UNHEX(SHA2(CONCAT(X'01', IF(p_scope IS NULL, X'00', X'01'),
        UNHEX(LPAD(HEX(COALESCE(LENGTH(p_scope), 0)), 8, '0')), COALESCE(p_scope, X''),
        UNHEX(LPAD(HEX(LENGTH(p_key)), 8, '0')), p_key), 256));
    DECLARE v_print BINARY(32) DEFAULT UNHEX(SHA2(p_fingerprint, 256));
    DECLARE v_definition BIGINT DEFAULT IF(p_fingerprint IS NULL, 0, 1);
    DECLARE v_there, v_expired, v_differs BOOLEAN;
    DECLARE v_status INT;
    DECLARE v_result LONGBLOB;
    DECLARE v_try INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR 1062 SET v_there = TRUE;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_there = FALSE;

    IF COALESCE(LENGTH(p_prefix), 0) NOT BETWEEN 1 AND 128 OR
       COALESCE(LENGTH(p_key), 0) NOT BETWEEN 1 AND 4096 OR LENGTH(p_scope) NOT BETWEEN 1 AND 4096 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
            'idem: a prefix has 1 to 128 bytes, a key 1 to 4096, and so has a scope that is not NULL';
    END IF;
    IF COALESCE(p_ttl_s, 0) < 1 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'idem: a row is remembered for a second at least';
    END IF;
    WHILE v_try < 3 DO
        SET v_try = v_try + 1, v_there = FALSE;
        INSERT INTO idem_tx (prefix, hash, definition, fingerprint, created, expires)
            VALUES (p_prefix, v_hash, v_definition, v_print, UTC_TIMESTAMP(3),
                    UTC_TIMESTAMP(3) + INTERVAL p_ttl_s SECOND);
        IF NOT v_there THEN
            SELECT 'first' AS outcome, NULL AS status, NULL AS result;
            LEAVE this;
        END IF;
        SELECT expires <= UTC_TIMESTAMP(3), definition = v_definition AND fingerprint <> v_print,
               COALESCE(status, 0), result
            INTO v_expired, v_differs, v_status, v_result
            FROM idem_tx WHERE prefix = p_prefix AND hash = v_hash LOCK IN SHARE MODE;
        IF v_there AND NOT v_expired THEN
            IF COALESCE(v_differs, FALSE) THEN
                SELECT 'mismatch' AS outcome, NULL AS status, NULL AS result;
            ELSE
                SELECT 'duplicate' AS outcome, v_status AS status, v_result AS result;
            END IF;
            LEAVE this;
        END IF;
        IF v_there THEN
            UPDATE idem_tx SET definition = v_definition, fingerprint = v_print, status = NULL,
                    result = NULL, created = UTC_TIMESTAMP(3),
                    expires = UTC_TIMESTAMP(3) + INTERVAL p_ttl_s SECOND
                WHERE prefix = p_prefix AND hash = v_hash AND expires <= UTC_TIMESTAMP(3);
            IF ROW_COUNT() = 1 THEN
                SELECT 'first' AS outcome, NULL AS status, NULL AS result;
                LEAVE this;
            END IF;
        END IF;
    END WHILE;
    SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'idem: the row of this key comes and goes: begin anew';
END//

CREATE PROCEDURE idem_once(IN p_prefix LONGBLOB, IN p_scope LONGBLOB,
                           IN p_key LONGBLOB, IN p_fingerprint LONGBLOB)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    CALL idem_once_for(p_prefix, p_scope, p_key, p_fingerprint, 86400);
END//

CREATE PROCEDURE idem_result(IN p_prefix LONGBLOB, IN p_scope LONGBLOB,
                             IN p_key LONGBLOB, IN p_status INT, IN p_result LONGBLOB)
    MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_hash BINARY(32) DEFAULT UNHEX(SHA2(CONCAT(X'01', IF(p_scope IS NULL, X'00', X'01'),
        UNHEX(LPAD(HEX(COALESCE(LENGTH(p_scope), 0)), 8, '0')), COALESCE(p_scope, X''),
        UNHEX(LPAD(HEX(LENGTH(p_key)), 8, '0')), p_key), 256));

    IF COALESCE(LENGTH(p_prefix), 0) NOT BETWEEN 1 AND 128 OR
       COALESCE(LENGTH(p_key), 0) NOT BETWEEN 1 AND 4096 OR LENGTH(p_scope) NOT BETWEEN 1 AND 4096 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
            'idem: a prefix has 1 to 128 bytes, a key 1 to 4096, and so has a scope that is not NULL';
    END IF;
    UPDATE idem_tx SET status = COALESCE(p_status, 0), result = p_result
        WHERE prefix = p_prefix AND hash = v_hash AND status IS NULL;
    IF ROW_COUNT() <> 1 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT =
            'idem: there is no row of this key that waits for its result';
    END IF;
END//
DELIMITER ;

INSERT INTO idem_meta (one, version, oldest) VALUES (1, 1, 1);
