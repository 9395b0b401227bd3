-- The schema of a store in PostgreSQL, version 1. Each table holds the rows of all tenants; a tenant is a user's space.
-- "tenant" is the first column of every key, and row-level security shows a transaction the rows of its tenant alone.
-- Tables have the columns of the SQLite files, in their order, so that both are asked by the same statements.

CREATE SCHEMA runebook;
CREATE SCHEMA runebook_ledger;
CREATE SCHEMA runebook_index;
CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE runebook.store (version integer NOT NULL, id text NOT NULL);
INSERT INTO runebook.store VALUES (1, replace(gen_random_uuid()::text, '-', ''));

-- What statements use of SQLite's functions.
CREATE DOMAIN runebook.bytes AS text COLLATE "C";
CREATE FUNCTION runebook.json_each(list text) RETURNS TABLE (value text) LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE jsonb_typeof(item) WHEN 'string' THEN item #>> '{}' ELSE item::text END
    FROM jsonb_array_elements(list::jsonb) item $$;
CREATE FUNCTION runebook.json_extract(list text, path text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_path_query_first(list::jsonb, path::jsonpath) #>> '{}' $$;
CREATE FUNCTION runebook.instr(whole text, part text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT strpos(whole, part) $$;
CREATE FUNCTION runebook.substr(whole text, first bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_catalog.substr(whole, first::integer) $$;
CREATE FUNCTION runebook.substr(whole text, first bigint, chars bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_catalog.substr(whole, first::integer, chars::integer) $$;
CREATE FUNCTION runebook.max(one text, other text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(one COLLATE "C", other COLLATE "C") $$;
CREATE FUNCTION runebook.min(one bigint, other bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(one, other) $$;
CREATE FUNCTION runebook.json_list(items text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT to_jsonb(items)::text $$;
CREATE AGGREGATE runebook.json_group_array(text) (SFUNC = array_append, STYPE = text[], FINALFUNC = runebook.json_list);
CREATE AGGREGATE runebook.total(bigint) (SFUNC = int8pl, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE runebook.total(double precision) (SFUNC = float8pl, STYPE = double precision, INITCOND = '0');
CREATE FUNCTION runebook.tenant() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT nullif(current_setting('runebook.tenant', true), '') $$;

-- The ledger: what cannot be made anew.

CREATE FUNCTION runebook_ledger.next_seq() RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN RETURN (SELECT coalesce(max(seq), 0) + 1 FROM runebook_ledger.commits); END $$;
CREATE TABLE runebook_ledger.meta (
    name runebook.bytes NOT NULL,
    value text NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, name)
);
CREATE TABLE runebook_ledger.commits (
    seq bigint NOT NULL DEFAULT runebook_ledger.next_seq(),
    commit_id runebook.bytes NOT NULL,
    request_id runebook.bytes,
    at runebook.bytes NOT NULL,
    kind runebook.bytes NOT NULL,
    receipt text NOT NULL,
    settled integer NOT NULL DEFAULT 0,
    author runebook.bytes NOT NULL DEFAULT '',
    undoes runebook.bytes,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, commit_id),
    UNIQUE (tenant, request_id)
);
CREATE INDEX commits_unsettled ON runebook_ledger.commits (tenant, seq) WHERE settled = 0;
CREATE INDEX commits_undoes ON runebook_ledger.commits (tenant, undoes) WHERE undoes IS NOT NULL;
CREATE TABLE runebook_ledger.changes (
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    uri runebook.bytes NOT NULL,
    memory_type runebook.bytes NOT NULL,
    appended integer NOT NULL,
    before text,
    after text,
    before_sha256 runebook.bytes,
    after_sha256 runebook.bytes,
    moved_from runebook.bytes,
    purged integer NOT NULL DEFAULT 0,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, seq, ordinal)
);
CREATE INDEX changes_uri ON runebook_ledger.changes (tenant, uri, seq);
CREATE TABLE runebook_ledger.files (
    uri runebook.bytes NOT NULL,
    directory runebook.bytes NOT NULL,
    name_fold runebook.bytes NOT NULL,
    memory_type runebook.bytes NOT NULL,
    key runebook.bytes NOT NULL,
    sha256 runebook.bytes NOT NULL,
    size_bytes bigint,
    mtime_ns bigint,
    seq bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, uri)
);
CREATE INDEX files_name ON runebook_ledger.files (tenant, directory, name_fold);
CREATE INDEX files_key ON runebook_ledger.files (tenant, directory, memory_type, key);
CREATE INDEX files_seq ON runebook_ledger.files (tenant, seq);
CREATE TABLE runebook_ledger.directories (
    directory runebook.bytes NOT NULL,
    memories bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, directory)
);
CREATE FUNCTION runebook_ledger.count_memory() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO runebook_ledger.directories (tenant, directory, memories) VALUES (NEW.tenant, NEW.directory, 1)
            ON CONFLICT (tenant, directory) DO UPDATE SET memories = directories.memories + 1;
    ELSE
        UPDATE runebook_ledger.directories SET memories = memories - 1
            WHERE tenant = OLD.tenant AND directory = OLD.directory;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_added AFTER INSERT ON runebook_ledger.files FOR EACH ROW
    WHEN (NEW.name_fold LIKE '%.md' AND NEW.name_fold NOT LIKE '.%') EXECUTE FUNCTION runebook_ledger.count_memory();
CREATE TRIGGER memory_removed AFTER DELETE ON runebook_ledger.files FOR EACH ROW
    WHEN (OLD.name_fold LIKE '%.md' AND OLD.name_fold NOT LIKE '.%') EXECUTE FUNCTION runebook_ledger.count_memory();
CREATE TABLE runebook_ledger.usage (
    uri runebook.bytes NOT NULL,
    access_count bigint NOT NULL,
    last_accessed_at runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, uri)
);
CREATE TABLE runebook_ledger.trail (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    at runebook.bytes NOT NULL,
    query text NOT NULL,
    kind runebook.bytes NOT NULL,
    hits text NOT NULL,
    milliseconds double precision NOT NULL,
    cached integer NOT NULL,
    rank runebook.bytes NOT NULL,
    session_id runebook.bytes,
    project runebook.bytes,
    space runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id)
);
CREATE TABLE runebook_ledger.injected_sessions (
    session runebook.bytes NOT NULL,
    touched_at runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, session)
);
CREATE INDEX injected_sessions_touched ON runebook_ledger.injected_sessions (tenant, touched_at);
CREATE TABLE runebook_ledger.injections (
    session runebook.bytes NOT NULL,
    uri runebook.bytes NOT NULL,
    digest runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, session, uri),
    FOREIGN KEY (tenant, session) REFERENCES runebook_ledger.injected_sessions (tenant, session) ON DELETE CASCADE
);
CREATE TABLE runebook_ledger.extractions (
    log runebook.bytes NOT NULL,
    stored bigint NOT NULL,
    extracted bigint NOT NULL DEFAULT 0,
    briefed bigint NOT NULL DEFAULT 0,
    seen text NOT NULL DEFAULT '{}',
    since runebook.bytes NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    retry_at runebook.bytes,
    reason text,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, log)
);
CREATE TABLE runebook_ledger.counted_calls (
    key runebook.bytes NOT NULL,
    log runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, key)
);
CREATE TABLE runebook_ledger.progress (
    seq bigint NOT NULL,
    log runebook.bytes NOT NULL,
    stored_before bigint,
    extracted_before bigint,
    stored bigint,
    extracted bigint,
    counted text NOT NULL,
    uncounted text NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, seq)
);
CREATE TABLE runebook_ledger.model_calls (
    space runebook.bytes NOT NULL,
    purpose runebook.bytes NOT NULL,
    model runebook.bytes NOT NULL,
    calls bigint NOT NULL,
    failures bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, space, purpose, model)
);
CREATE TABLE runebook_ledger.tokens (
    id runebook.bytes NOT NULL,
    label runebook.bytes NOT NULL,
    digest bytea NOT NULL,
    user_space runebook.bytes NOT NULL,
    agent_space runebook.bytes NOT NULL,
    read_only integer NOT NULL,
    created_at runebook.bytes NOT NULL,
    expires_at runebook.bytes,
    last_used_at runebook.bytes,
    revoked_at runebook.bytes,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX tokens_label ON runebook_ledger.tokens (tenant, label) WHERE revoked_at IS NULL;

-- The index: made anew from the ledger by whoever finds it behind.

CREATE TABLE runebook_index.meta (
    name runebook.bytes NOT NULL,
    value text NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, name)
);
CREATE TABLE runebook_index.spaces (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    name runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, name)
);
CREATE TABLE runebook_index.documents (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    uri runebook.bytes NOT NULL,
    part bigint NOT NULL,
    space runebook.bytes NOT NULL,
    context_type runebook.bytes NOT NULL,
    memory_type runebook.bytes NOT NULL,
    name runebook.bytes NOT NULL,
    abstract text NOT NULL,
    own text NOT NULL,
    created_at runebook.bytes,
    updated_at runebook.bytes,
    happened runebook.bytes,
    salience double precision NOT NULL,
    tags text NOT NULL,
    category runebook.bytes,
    project runebook.bytes,
    private integer NOT NULL,
    contested_by text NOT NULL,
    signature runebook.bytes NOT NULL,
    confidence double precision NOT NULL,
    active integer NOT NULL,
    pinned integer NOT NULL,
    expires_at runebook.bytes,
    support double precision NOT NULL,
    role runebook.bytes,
    speaker runebook.bytes,
    session_id runebook.bytes,
    always_on integer NOT NULL DEFAULT 0,
    general integer NOT NULL DEFAULT 1,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, uri, part)
);
CREATE INDEX documents_space ON runebook_index.documents (tenant, space);
CREATE INDEX documents_private ON runebook_index.documents (tenant, project) WHERE private = 1;
CREATE INDEX documents_happened ON runebook_index.documents (tenant, space, happened) WHERE happened IS NOT NULL;
CREATE INDEX documents_always_on ON runebook_index.documents (tenant, space, updated_at) WHERE always_on = 1;
-- A row for each word of a document: the places where it stands in the text itself and in the turns before it.
CREATE TABLE runebook_index.words (
    term runebook.bytes NOT NULL,
    document bigint NOT NULL,
    own text NOT NULL,
    previous text NOT NULL,
    tokens integer NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, term, document)
);
CREATE INDEX words_document ON runebook_index.words (tenant, document);
CREATE TABLE runebook_index.word_counts (
    document bigint NOT NULL,
    tokens integer NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, document) INCLUDE (tokens)
);
CREATE TABLE runebook_index.passages (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    document_id bigint NOT NULL,
    space runebook.bytes NOT NULL,
    uri runebook.bytes NOT NULL,
    part bigint NOT NULL,
    text text NOT NULL,
    content_sha256 runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, uri, part)
);
CREATE INDEX passages_document ON runebook_index.passages (tenant, document_id);
CREATE INDEX passages_space ON runebook_index.passages (tenant, space);
CREATE TABLE runebook_index.models (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    fingerprint runebook.bytes NOT NULL,
    last_used double precision NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id),
    UNIQUE (tenant, fingerprint)
);
CREATE TABLE runebook_index.waiting (
    model_id bigint NOT NULL,
    passage_id bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, model_id, passage_id)
);
CREATE TABLE runebook_index.vectors (
    seq bigint GENERATED BY DEFAULT AS IDENTITY,
    space runebook.bytes NOT NULL,
    uri runebook.bytes NOT NULL,
    part bigint NOT NULL,
    content_sha256 runebook.bytes NOT NULL,
    fingerprint runebook.bytes NOT NULL,
    vector halfvec NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, space, uri, part, content_sha256, fingerprint)
);
CREATE INDEX vectors_seq ON runebook_index.vectors (tenant, space, fingerprint, seq);
CREATE TABLE runebook_index.vector_changes (
    id integer NOT NULL DEFAULT 0,
    number bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id)
);
CREATE TABLE runebook_index.resting (
    segment runebook.bytes NOT NULL,
    log runebook.bytes NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, segment, first)
);
CREATE INDEX resting_log ON runebook_index.resting (tenant, log);
CREATE TABLE runebook_index.page_rows (
    directory runebook.bytes NOT NULL,
    name runebook.bytes NOT NULL,
    seq bigint NOT NULL,
    ordinal integer NOT NULL,
    important integer NOT NULL,
    private integer NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, directory, name)
);
CREATE INDEX page_rows_order ON runebook_index.page_rows (tenant, directory, private, important, seq, ordinal);
CREATE TABLE runebook_index.stale_pages (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    directory runebook.bytes NOT NULL,
    name runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX stale_pages_directory ON runebook_index.stale_pages (tenant, directory);
-- Pages of directories as they were made last.
CREATE TABLE runebook_index.pages (
    uri runebook.bytes NOT NULL,
    directory runebook.bytes NOT NULL,
    text text NOT NULL,
    mtime_ns bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, uri)
);
CREATE INDEX pages_directory ON runebook_index.pages (tenant, directory);

-- A transaction sees, and writes, the rows of the tenant that it named.
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT schemaname AS place, tablename AS name FROM pg_tables
        WHERE schemaname IN ('runebook_ledger', 'runebook_index')
    LOOP
        EXECUTE format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY', found.place, found.name);
        EXECUTE format('ALTER TABLE %I.%I FORCE ROW LEVEL SECURITY', found.place, found.name);
        EXECUTE format('CREATE POLICY tenant ON %I.%I USING (tenant = runebook.tenant())', found.place, found.name);
    END LOOP;
END $$;
CREATE VIEW runebook_index.vector_documents WITH (security_invoker = true) AS
    SELECT v.seq, coalesce(p.document_id, 0) AS document_id FROM runebook_index.vectors v
    LEFT JOIN runebook_index.passages p ON p.uri = v.uri AND p.part = v.part AND p.content_sha256 = v.content_sha256;
