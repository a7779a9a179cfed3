-- What Idem keeps in an SQLite database: the rows of guards, and their version. `idem migrate` runs the
-- parts that are missing, each in one transaction; a part begins at a line with -- @ and the version
-- that it leads to. Times are milliseconds since 1970.

-- @ 1
CREATE TABLE idem_meta (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    oldest  INTEGER NOT NULL -- whose programs may use it
);

-- What was done within somebody's own transaction.
CREATE TABLE idem_tx (
    prefix      BLOB NOT NULL CHECK (length(prefix) BETWEEN 1 AND 128),
    hash        BLOB NOT NULL CHECK (length(hash) = 32), -- SHA-256 of kind, scope and key
    definition  INTEGER NOT NULL, -- of the fingerprint; 0: there is none
    fingerprint BLOB,
    status      INTEGER, -- until it was said, NULL
    result      BLOB,
    created     INTEGER NOT NULL,
    expires     INTEGER NOT NULL,
    PRIMARY KEY (prefix, hash)
) WITHOUT ROWID;

INSERT INTO idem_meta (one, version, oldest) VALUES (1, 1, 1);
