-- How far each vector server was sent the rows of a space and model; see "chroma.Sent".

DROP TABLE IF EXISTS sent;
CREATE TABLE sent (
    server TEXT NOT NULL,
    space TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    identity TEXT NOT NULL,
    collection TEXT NOT NULL,
    seq INTEGER NOT NULL,
    writer TEXT NOT NULL,
    next_writer TEXT NOT NULL,
    PRIMARY KEY (server, space, fingerprint)
) WITHOUT ROWID;
