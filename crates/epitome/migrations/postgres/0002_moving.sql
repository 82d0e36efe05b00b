-- A SQLite file that is moved, or was moved, into this database: one row, once that was begun.
CREATE TABLE epitome.moving (
    only_one integer PRIMARY KEY CHECK (only_one = 1),
    begun    bigint NOT NULL,
    -- NULL while it is under way: until then nobody may use what is here.
    finished bigint,
    -- The table under way, how many of its rows are here, and what the last of them is known by. Written with the rows
    -- themselves, so that it always tells what is here.
    step     text NOT NULL,
    rows     bigint NOT NULL,
    last     text
);
