-- Version 2: how much a document tells, and when the schema was brought forward. The index is made anew once.

CREATE TABLE runebook.versions (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
INSERT INTO runebook.versions (version) VALUES (2);
ALTER TABLE runebook_index.documents ADD COLUMN substance double precision NOT NULL DEFAULT 1.0;
TRUNCATE runebook_index.meta;
UPDATE runebook.store SET version = 2;
