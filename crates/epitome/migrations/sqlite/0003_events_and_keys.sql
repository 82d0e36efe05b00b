-- What happened, for whoever follows along, and who may come in.

-- Numbers up to this one were given to events of the workspace, whether any of them is left or not. Written only when
-- events are removed with their session, which may be the newest.
ALTER TABLE workspaces ADD COLUMN events_given INTEGER NOT NULL DEFAULT 0;

-- Numbered inside its workspace, so that a number tells nothing of others. Only the newest are kept.
CREATE TABLE events (
    workspace TEXT NOT NULL,
    id        INTEGER NOT NULL,
    -- By its name: it is what a listener knows, and a session's events are removed with it.
    session   TEXT NOT NULL,
    kind      TEXT NOT NULL,
    data      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (workspace, id)
) WITHOUT ROWID;

CREATE TABLE keys (
    id        TEXT PRIMARY KEY NOT NULL,
    -- Of the whole secret, which is kept nowhere.
    hash      BLOB NOT NULL,
    -- NULL for whoever runs the server.
    workspace TEXT,
    rights    TEXT NOT NULL CHECK (rights IN ('read', 'write', 'admin')),
    label     TEXT NOT NULL,
    created   INTEGER NOT NULL,
    expires   INTEGER,
    revoked   INTEGER,
    CHECK ((rights = 'admin') = (workspace IS NULL))
) WITHOUT ROWID;
