-- The ledger, version by version: each part takes it from the version before.

-- version 1
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('ledger_id', lower(hex(randomblob(16))));
CREATE TABLE commits (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    commit_id TEXT NOT NULL UNIQUE,
    request_id TEXT UNIQUE,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    receipt TEXT NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX commits_unsettled ON commits (seq) WHERE settled = 0;
CREATE TABLE changes (
    seq INTEGER NOT NULL REFERENCES commits (seq),
    ordinal INTEGER NOT NULL,
    uri TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    appended INTEGER NOT NULL,
    before TEXT,
    after TEXT,
    before_sha256 TEXT,
    after_sha256 TEXT,
    PRIMARY KEY (seq, ordinal)
) WITHOUT ROWID;
CREATE INDEX changes_uri ON changes (uri, seq);
CREATE TABLE files (
    uri TEXT PRIMARY KEY,
    directory TEXT NOT NULL,
    name_fold TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    key TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size_bytes INTEGER,
    mtime_ns INTEGER,
    seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX files_name ON files (directory, name_fold);
CREATE INDEX files_key ON files (directory, memory_type, key);
CREATE TABLE usage (
    uri TEXT PRIMARY KEY,
    access_count INTEGER NOT NULL,
    last_accessed_at TEXT NOT NULL
) WITHOUT ROWID;

-- version 2
-- Keys are compared without regard to simplified or traditional characters; conversations wait in a queue.
CREATE TABLE extractions (
    log TEXT PRIMARY KEY,
    stored INTEGER NOT NULL,
    extracted INTEGER NOT NULL DEFAULT 0,
    briefed INTEGER NOT NULL DEFAULT 0,
    seen TEXT NOT NULL DEFAULT '{}',
    since TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    retry_at TEXT,
    reason TEXT
) WITHOUT ROWID;
CREATE TABLE counted_calls (key TEXT PRIMARY KEY, log TEXT NOT NULL) WITHOUT ROWID;
UPDATE files SET key = refold(key);
CREATE TABLE directories (directory TEXT PRIMARY KEY, memories INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO directories SELECT directory, count(*) FROM files WHERE name_fold LIKE '%.md' AND name_fold NOT LIKE '.%' GROUP BY directory;
CREATE TRIGGER memory_added AFTER INSERT ON files WHEN new.name_fold LIKE '%.md' AND new.name_fold NOT LIKE '.%'
BEGIN
    INSERT INTO directories VALUES (new.directory, 1) ON CONFLICT (directory) DO UPDATE SET memories = memories + 1;
END;
CREATE TRIGGER memory_removed AFTER DELETE ON files WHEN old.name_fold LIKE '%.md' AND old.name_fold NOT LIKE '.%'
BEGIN
    UPDATE directories SET memories = memories - 1 WHERE directory = old.directory;
END;

-- version 3
-- What was used, and what each session was shown.
CREATE TABLE trail (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    query TEXT NOT NULL,
    kind TEXT NOT NULL,
    hits TEXT NOT NULL,
    milliseconds REAL NOT NULL,
    cached INTEGER NOT NULL,
    rank TEXT NOT NULL,
    session_id TEXT,
    project TEXT,
    space TEXT NOT NULL
);
CREATE INDEX usage_most ON usage (access_count DESC, last_accessed_at DESC, uri) WHERE substr(uri, 1, 17) <> 'viking://session/';

CREATE TABLE injected_sessions (session TEXT PRIMARY KEY, touched_at TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX injected_sessions_touched ON injected_sessions (touched_at);
CREATE TABLE injections (
    session TEXT NOT NULL REFERENCES injected_sessions (session) ON DELETE CASCADE,
    uri TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (session, uri)
) WITHOUT ROWID;

-- version 4
-- History says who wrote, what an undo takes back, and where a file was before; request ids belong to a user.
ALTER TABLE commits ADD COLUMN author TEXT NOT NULL DEFAULT '';
ALTER TABLE commits ADD COLUMN undoes TEXT;
CREATE INDEX commits_undoes ON commits (undoes) WHERE undoes IS NOT NULL;
ALTER TABLE changes ADD COLUMN moved_from TEXT;
UPDATE commits SET request_id = coalesce(
    (SELECT space_of(uri) FROM changes WHERE changes.seq = commits.seq AND
     (uri LIKE 'viking://user/%' OR uri LIKE 'viking://session/%') ORDER BY ordinal LIMIT 1), 'default'
) || '/' || request_id WHERE request_id IS NOT NULL;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    label TEXT NOT NULL,
    digest BLOB NOT NULL,
    user_space TEXT NOT NULL,
    agent_space TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    last_used_at TEXT,
    revoked_at TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX tokens_label ON tokens (label) WHERE revoked_at IS NULL;

ALTER TABLE changes ADD COLUMN purged INTEGER NOT NULL DEFAULT 0;
CREATE TABLE progress (
    seq INTEGER PRIMARY KEY REFERENCES commits (seq),
    log TEXT NOT NULL,
    stored_before INTEGER,
    extracted_before INTEGER,
    stored INTEGER,
    extracted INTEGER,
    counted TEXT NOT NULL,
    uncounted TEXT NOT NULL
);

-- version 5
-- What language models were asked for.
CREATE TABLE model_calls (
    space TEXT NOT NULL,
    purpose TEXT NOT NULL,
    model TEXT NOT NULL,
    calls INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    PRIMARY KEY (space, purpose, model)
) WITHOUT ROWID;

-- version 6
-- Lists of pages are views: of a page only what somebody wrote is kept. A text that an earlier change left stays once.
UPDATE changes SET before = page_words(uri, before), after = page_words(uri, after) WHERE (uri LIKE '%/.overview.md' OR uri LIKE '%/.abstract.md');
DELETE FROM changes WHERE (uri LIKE '%/.overview.md' OR uri LIKE '%/.abstract.md') AND before IS after;
UPDATE changes SET before_sha256 = sha256_of(before), after_sha256 = sha256_of(after) WHERE (uri LIKE '%/.overview.md' OR uri LIKE '%/.abstract.md');
DELETE FROM files WHERE (uri LIKE '%/.overview.md' OR uri LIKE '%/.abstract.md') AND (
    SELECT after_sha256 FROM changes WHERE changes.uri = files.uri ORDER BY changes.seq DESC LIMIT 1) IS NULL;
UPDATE files SET size_bytes = NULL, mtime_ns = NULL, sha256 = (
    SELECT after_sha256 FROM changes WHERE changes.uri = files.uri ORDER BY changes.seq DESC LIMIT 1) WHERE (uri LIKE '%/.overview.md' OR uri LIKE '%/.abstract.md');
UPDATE changes SET before = NULL WHERE before IS NOT NULL AND before_sha256 = (
    SELECT earlier.after_sha256 FROM changes earlier
    WHERE earlier.uri = changes.uri AND earlier.seq < changes.seq ORDER BY earlier.seq DESC LIMIT 1);

-- version 7
-- Logins.
CREATE TABLE login_clients (
    id TEXT PRIMARY KEY,
    metadata TEXT NOT NULL,
    created_at TEXT NOT NULL,
    used_at TEXT
) WITHOUT ROWID;
CREATE TABLE login_grants (
    id TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    token TEXT NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX login_grants_client ON login_grants (client);
CREATE INDEX login_grants_token ON login_grants (token);
CREATE TABLE login_secrets (
    digest TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    grant_id TEXT NOT NULL,
    details TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    spent_at TEXT
) WITHOUT ROWID;
CREATE INDEX login_secrets_grant ON login_secrets (grant_id);
CREATE INDEX login_secrets_expires ON login_secrets (expires_at);
CREATE TABLE login_users (
    user_space TEXT PRIMARY KEY,
    seen_at TEXT NOT NULL
) WITHOUT ROWID;

-- version 8
-- Tokens open shared spaces.
ALTER TABLE tokens ADD COLUMN shared TEXT NOT NULL DEFAULT '';

-- version 9
-- Which calls of tools were counted is kept for each user: two may have the same conversation.
ALTER TABLE counted_calls RENAME TO counted_before;
CREATE TABLE counted_calls (key TEXT NOT NULL, log TEXT NOT NULL, PRIMARY KEY (key, log)) WITHOUT ROWID;
INSERT INTO counted_calls SELECT key, log FROM counted_before;
DROP TABLE counted_before;

-- version 10
-- Whoever maintains the store knows who opens it by settings, too, and with which agent space.
CREATE TABLE seen_users (
    user_space TEXT NOT NULL,
    agent_space TEXT NOT NULL,
    by_settings INTEGER NOT NULL,
    since TEXT NOT NULL,
    seen_at TEXT NOT NULL,
    PRIMARY KEY (user_space, agent_space)
) WITHOUT ROWID;
INSERT INTO seen_users SELECT user_space, user_space, 0, seen_at, seen_at FROM login_users;
DROP TABLE login_users;
