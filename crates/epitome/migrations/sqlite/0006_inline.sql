-- What was done to lists that pass through, so that it is done again after a restart. Lists are known by hashes only.
CREATE TABLE inline (
    workspace TEXT NOT NULL,
    -- Of its first message.
    root BLOB NOT NULL,
    -- How many messages it had when it was condensed, and the hash of all of them.
    length INTEGER NOT NULL,
    hash BLOB NOT NULL,
    kept TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (workspace, root, length, hash)
) WITHOUT ROWID;

CREATE INDEX inline_by_age ON inline (workspace, at);

-- What passed through, by the hour: counted by the provider, saved by us.
CREATE TABLE passed (
    workspace TEXT NOT NULL,
    hour INTEGER NOT NULL,
    model TEXT NOT NULL,
    -- 1 where nothing was changed and this is what would have been.
    shadow INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    shorter INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    cut_off INTEGER NOT NULL,
    uncounted INTEGER NOT NULL,
    input INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    output INTEGER NOT NULL,
    saved INTEGER NOT NULL,
    -- In millionths.
    cost INTEGER NOT NULL,
    saved_cost INTEGER NOT NULL,
    PRIMARY KEY (workspace, hour, model, shadow)
) WITHOUT ROWID;
