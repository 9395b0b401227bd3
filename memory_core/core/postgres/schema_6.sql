-- Version 6: whoever maintains the store knows who opens it by settings, too, and with which agent space.

ALTER TABLE runebook_ledger.login_users RENAME TO seen_users;
ALTER TABLE runebook_ledger.seen_users
    ADD COLUMN agent_space runebook.bytes,
    ADD COLUMN by_settings integer NOT NULL DEFAULT 0,
    ADD COLUMN since runebook.bytes;
ALTER TABLE runebook_ledger.seen_users NO FORCE ROW LEVEL SECURITY; -- its owner fills the rows of all tenants
UPDATE runebook_ledger.seen_users SET agent_space = user_space, since = seen_at;
ALTER TABLE runebook_ledger.seen_users FORCE ROW LEVEL SECURITY;
ALTER TABLE runebook_ledger.seen_users
    ALTER COLUMN agent_space SET NOT NULL,
    ALTER COLUMN by_settings DROP DEFAULT,
    ALTER COLUMN since SET NOT NULL,
    DROP CONSTRAINT login_users_pkey,
    ADD PRIMARY KEY (tenant, user_space, agent_space);
INSERT INTO runebook.versions (version) VALUES (6);
UPDATE runebook.store SET version = 6;
