-- All that the ledger and the files fill again. A catalog of an older version is made anew rather than altered.
-- The full-text table "words" is beside this: "catalog_file.WORDS_DDL".

DROP TRIGGER IF EXISTS vector_added;
DROP TRIGGER IF EXISTS vector_pruned;
DROP TABLE IF EXISTS meta;
DROP TABLE IF EXISTS spaces;
DROP TABLE IF EXISTS documents;
DROP TABLE IF EXISTS words;
DROP TABLE IF EXISTS passages;
DROP TABLE IF EXISTS models;
DROP TABLE IF EXISTS waiting;
DROP TABLE IF EXISTS resting;
DROP TABLE IF EXISTS page_rows;
DROP TABLE IF EXISTS stale_pages;
DROP TABLE IF EXISTS vector_documents;
DROP TABLE IF EXISTS vector_changes;

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- "changed" is another number whenever a document, passage or vector of the space came, went or changed.
CREATE TABLE spaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, changed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    space TEXT NOT NULL,
    context_type TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    name TEXT NOT NULL,
    abstract TEXT NOT NULL,
    own TEXT NOT NULL,
    created_at TEXT,
    updated_at TEXT,
    happened TEXT,
    salience REAL NOT NULL,
    tags TEXT NOT NULL,
    category TEXT,
    project TEXT,
    private INTEGER NOT NULL,
    contested_by TEXT NOT NULL,
    signature TEXT NOT NULL,
    confidence REAL NOT NULL,
    active INTEGER NOT NULL,
    pinned INTEGER NOT NULL,
    expires_at TEXT,
    support REAL NOT NULL,
    role TEXT,
    speaker TEXT,
    session_id TEXT,
    always_on INTEGER NOT NULL DEFAULT 0,
    general INTEGER NOT NULL DEFAULT 1,
    substance REAL NOT NULL DEFAULT 1.0,
    UNIQUE (uri, part)
);
CREATE INDEX documents_space ON documents (space);
CREATE INDEX documents_private ON documents (space, project) WHERE private;
CREATE INDEX documents_happened ON documents (space, happened) WHERE happened IS NOT NULL;
CREATE INDEX documents_always_on ON documents (space, updated_at) WHERE always_on;
CREATE TRIGGER document_added AFTER INSERT ON documents BEGIN
    UPDATE spaces SET changed = changed + 1 WHERE name = NEW.space;
END;
CREATE TRIGGER document_changed AFTER UPDATE ON documents BEGIN
    UPDATE spaces SET changed = changed + 1 WHERE name = NEW.space;
END;
CREATE TRIGGER document_removed AFTER DELETE ON documents BEGIN
    UPDATE spaces SET changed = changed + 1 WHERE name = OLD.space;
END;

-- What is embedded, and what waits for a vector of which model: "embedding_queue".
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document_id INTEGER NOT NULL,
    space TEXT NOT NULL,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    text TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    UNIQUE (uri, part)
);
CREATE INDEX passages_document ON passages (document_id);
CREATE INDEX passages_space ON passages (space);
CREATE TABLE models (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, last_used REAL NOT NULL);
CREATE TABLE waiting (
    model_id INTEGER NOT NULL, passage_id INTEGER NOT NULL, PRIMARY KEY (model_id, passage_id)
) WITHOUT ROWID;

-- Lines of logs that archived files stand for.
CREATE TABLE resting (
    segment TEXT NOT NULL,
    log TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (segment, first)
) WITHOUT ROWID;
CREATE INDEX resting_log ON resting (log);

-- What the pages of directories list: "page_rows".
CREATE TABLE page_rows (
    directory TEXT NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    important INTEGER NOT NULL,
    private INTEGER NOT NULL,
    PRIMARY KEY (directory, name)
) WITHOUT ROWID;
CREATE INDEX page_rows_order ON page_rows (directory, private, important, seq, ordinal);
CREATE TABLE stale_pages (id INTEGER PRIMARY KEY AUTOINCREMENT, directory TEXT NOT NULL, name TEXT NOT NULL);
CREATE INDEX stale_pages_directory ON stale_pages (directory);

-- Whose each vector is at present: "vectors". "document_id" is 0 where the text is gone; rows that were pruned stay here
-- as such, for whoever has followed to an earlier number.
CREATE TABLE vector_changes (id TEXT NOT NULL, number INTEGER NOT NULL);
INSERT INTO vector_changes VALUES (lower(hex(randomblob(16))), 0);
CREATE TABLE vector_documents (seq INTEGER PRIMARY KEY, document_id INTEGER NOT NULL, changed INTEGER NOT NULL);
CREATE INDEX vector_documents_changed ON vector_documents (changed);
INSERT INTO vector_documents SELECT seq, 0, 0 FROM vectors;
CREATE TRIGGER vector_added AFTER INSERT ON vectors BEGIN
    UPDATE vector_changes SET number = number + 1;
    UPDATE spaces SET changed = changed + 1 WHERE name = NEW.space;
    INSERT INTO vector_documents SELECT NEW.seq, coalesce((SELECT p.document_id FROM passages p
        WHERE p.uri = NEW.uri AND p.part = NEW.part AND p.content_sha256 = NEW.content_sha256), 0), number
        FROM vector_changes;
END;
CREATE TRIGGER vector_pruned AFTER DELETE ON vectors BEGIN
    UPDATE vector_changes SET number = number + 1;
    UPDATE spaces SET changed = changed + 1 WHERE name = OLD.space;
    UPDATE vector_documents SET document_id = 0, changed = (SELECT number FROM vector_changes) WHERE seq = OLD.seq;
END;
CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
    UPDATE vector_changes SET number = number + 1;
    UPDATE spaces SET changed = changed + 1 WHERE name = NEW.space;
    UPDATE vector_documents SET document_id = NEW.document_id, changed = (SELECT number FROM vector_changes)
        WHERE seq IN (SELECT seq FROM vectors WHERE space = NEW.space AND uri = NEW.uri AND part = NEW.part
            AND content_sha256 = NEW.content_sha256);
END;
CREATE TRIGGER passage_moved AFTER UPDATE OF document_id ON passages WHEN NEW.document_id <> OLD.document_id BEGIN
    UPDATE vector_changes SET number = number + 1;
    UPDATE spaces SET changed = changed + 1 WHERE name = NEW.space;
    UPDATE vector_documents SET document_id = NEW.document_id, changed = (SELECT number FROM vector_changes)
        WHERE seq IN (SELECT seq FROM vectors WHERE space = NEW.space AND uri = NEW.uri AND part = NEW.part
            AND content_sha256 = NEW.content_sha256);
END;
CREATE TRIGGER passage_removed AFTER DELETE ON passages BEGIN
    UPDATE vector_changes SET number = number + 1;
    UPDATE spaces SET changed = changed + 1 WHERE name = OLD.space;
    UPDATE vector_documents SET document_id = 0, changed = (SELECT number FROM vector_changes)
        WHERE seq IN (SELECT seq FROM vectors WHERE space = OLD.space AND uri = OLD.uri AND part = OLD.part
            AND content_sha256 = OLD.content_sha256);
END;
