-- Who speaks in a workspace, which sessions they belong to, and what callers note of all of these.

ALTER TABLE workspaces ADD COLUMN metadata TEXT NOT NULL DEFAULT '';
-- What another API keeps beside our settings: a document of its own, kept as it came.
ALTER TABLE workspaces ADD COLUMN configuration TEXT NOT NULL DEFAULT '';
-- Whether it was deleted. Its row stays, since the numbers of its events are not given again.
ALTER TABLE workspaces ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX workspaces_by_age ON workspaces (created, name) WHERE deleted = 0;

ALTER TABLE sessions ADD COLUMN configuration TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_by_age ON sessions (workspace, id) WHERE state = 'open';

CREATE TABLE authors (
    id            INTEGER PRIMARY KEY,
    workspace     TEXT NOT NULL,
    name          TEXT NOT NULL,
    metadata      TEXT NOT NULL DEFAULT '',
    configuration TEXT NOT NULL DEFAULT '',
    created       INTEGER NOT NULL
);

CREATE UNIQUE INDEX authors_by_name ON authors (workspace, name);
CREATE INDEX authors_by_age ON authors (workspace, id);

CREATE TABLE members (
    session       INTEGER NOT NULL,
    author        INTEGER NOT NULL,
    configuration TEXT NOT NULL DEFAULT '',
    joined        INTEGER NOT NULL,
    PRIMARY KEY (session, author)
) WITHOUT ROWID;

CREATE INDEX members_by_author ON members (author, session);

-- Whoever said something before this table was there.
INSERT INTO authors (workspace, name, created)
SELECT s.workspace, m.author, min(s.created)
FROM (SELECT DISTINCT session, author FROM messages INDEXED BY messages_by_author WHERE author IS NOT NULL) AS m
JOIN sessions AS s ON s.id = m.session WHERE s.state = 'open'
GROUP BY s.workspace, m.author ORDER BY min(s.id);

INSERT INTO members (session, author, joined)
SELECT s.id, a.id, s.created
FROM (SELECT DISTINCT session, author FROM messages INDEXED BY messages_by_author WHERE author IS NOT NULL) AS m
JOIN sessions AS s ON s.id = m.session JOIN authors AS a ON a.workspace = s.workspace AND a.name = m.author
WHERE s.state = 'open';

-- One row: a number nobody else knows, of which names are made that tell nothing.
CREATE TABLE secrets (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    secret   BLOB NOT NULL
);

INSERT INTO secrets (only_one, secret) VALUES (1, randomblob(32));
