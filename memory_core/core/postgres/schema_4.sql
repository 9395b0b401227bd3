-- Version 4: the shared spaces that a token opens.

ALTER TABLE runebook_ledger.tokens ADD COLUMN shared text NOT NULL DEFAULT '';
INSERT INTO runebook.versions (version) VALUES (4);
UPDATE runebook.store SET version = 4;
