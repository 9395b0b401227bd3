-- Version 5: how many documents and words a user has, counted as they come and go; and what servers took of the limits
-- that they share.

CREATE TABLE runebook_index.word_totals (
    documents bigint NOT NULL,
    tokens bigint NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant)
);
ALTER TABLE runebook_index.word_counts NO FORCE ROW LEVEL SECURITY; -- its owner counts those of all tenants
INSERT INTO runebook_index.word_totals (documents, tokens, tenant)
    SELECT count(*), sum(tokens), tenant FROM runebook_index.word_counts GROUP BY tenant;
ALTER TABLE runebook_index.word_counts FORCE ROW LEVEL SECURITY;
CREATE FUNCTION runebook_index.count_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runebook_index.word_totals AS kept (documents, tokens, tenant)
        SELECT CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END,
            CASE TG_OP WHEN 'INSERT' THEN sum(tokens) ELSE -sum(tokens) END, tenant FROM changed GROUP BY tenant
        ON CONFLICT (tenant) DO UPDATE
            SET documents = kept.documents + excluded.documents, tokens = kept.tokens + excluded.tokens;
    RETURN NULL;
END $$;
CREATE TRIGGER words_added AFTER INSERT ON runebook_index.word_counts REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION runebook_index.count_words();
CREATE TRIGGER words_removed AFTER DELETE ON runebook_index.word_counts REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION runebook_index.count_words();

-- When each client's bucket is full again, in seconds since 1970; lost with a crash of the database, as it may be.
CREATE UNLOGGED TABLE runebook_ledger.rates (
    client runebook.bytes NOT NULL,
    full_at double precision NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, client)
);
DO $$
DECLARE made text;
BEGIN
    FOREACH made IN ARRAY ARRAY['runebook_index.word_totals', 'runebook_ledger.rates']
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', made);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', made);
        EXECUTE format('CREATE POLICY tenant ON %s USING (tenant = runebook.tenant())', made);
    END LOOP;
END $$;
INSERT INTO runebook.versions (version) VALUES (5);
UPDATE runebook.store SET version = 5;
