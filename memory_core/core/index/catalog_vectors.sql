-- Vectors outlive every other table: what an older catalog embedded need not be embedded again.
-- "vector_log.id" tells this log from one that was deleted and begun again, whose numbers mean other rows.

CREATE TABLE vectors (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    space TEXT NOT NULL,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    content_sha256 TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (space, uri, part, content_sha256, fingerprint)
);
CREATE INDEX vectors_seq ON vectors (space, fingerprint, seq);
CREATE TABLE vector_log (id TEXT NOT NULL);
INSERT INTO vector_log (id) VALUES (lower(hex(randomblob(16))));
