-- The migration of a SQLite file into this database: one row, from its start on.
CREATE TABLE epitome.moving (
    only_one integer PRIMARY KEY CHECK (only_one = 1),
    begun    bigint NOT NULL,
    -- NULL while the migration is in progress. Until then no client may use the database.
    finished bigint,
    -- The current table, how many of its rows are copied, and the key of the last one. Written in the same transaction as the
    -- rows.
    step     text NOT NULL,
    rows     bigint NOT NULL,
    last     text
);
