-- A transaction whose rows do not identify it stores a random number here. After a lost response a node looks it up, to
-- find out whether the transaction was committed. The transaction id is not enough: after a crash, ids are assigned again.

CREATE TABLE epitome.done (
    mark bigint PRIMARY KEY,
    at   bigint NOT NULL
);

CREATE INDEX done_by_age ON epitome.done (at);
