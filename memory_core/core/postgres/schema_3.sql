-- Version 3: clients, grants and digests of the authorization server, and users whom an identity provider knows.

CREATE TABLE runebook_ledger.login_clients (
    id runebook.bytes NOT NULL,
    metadata text NOT NULL,
    created_at runebook.bytes NOT NULL,
    used_at runebook.bytes,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id)
);
CREATE TABLE runebook_ledger.login_grants (
    id runebook.bytes NOT NULL,
    client runebook.bytes NOT NULL,
    token runebook.bytes NOT NULL,
    created_at runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, id)
);
CREATE INDEX login_grants_client ON runebook_ledger.login_grants (tenant, client);
CREATE INDEX login_grants_token ON runebook_ledger.login_grants (tenant, token);
CREATE TABLE runebook_ledger.login_secrets (
    digest runebook.bytes NOT NULL,
    kind runebook.bytes NOT NULL,
    grant_id runebook.bytes NOT NULL,
    details text NOT NULL,
    expires_at runebook.bytes NOT NULL,
    spent_at runebook.bytes,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, digest)
);
CREATE INDEX login_secrets_grant ON runebook_ledger.login_secrets (tenant, grant_id);
CREATE INDEX login_secrets_expires ON runebook_ledger.login_secrets (tenant, expires_at);
CREATE TABLE runebook_ledger.login_users (
    user_space runebook.bytes NOT NULL,
    seen_at runebook.bytes NOT NULL,
    tenant runebook.bytes NOT NULL DEFAULT runebook.tenant(),
    PRIMARY KEY (tenant, user_space)
);
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT tablename AS name FROM pg_tables
        WHERE schemaname = 'runebook_ledger' AND tablename LIKE 'login\_%'
    LOOP
        EXECUTE format('ALTER TABLE runebook_ledger.%I ENABLE ROW LEVEL SECURITY', found.name);
        EXECUTE format('ALTER TABLE runebook_ledger.%I FORCE ROW LEVEL SECURITY', found.name);
        EXECUTE format('CREATE POLICY tenant ON runebook_ledger.%I USING (tenant = runebook.tenant())', found.name);
    END LOOP;
END $$;
INSERT INTO runebook.versions (version) VALUES (3);
UPDATE runebook.store SET version = 3;
