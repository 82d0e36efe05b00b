-- Changes that leave nothing by which they are known again leave a number here, drawn for each. Whoever did not hear whether one
-- was done looks for it: the number of its transaction alone would not do, as a server that crashed gives those again.

CREATE TABLE epitome.done (
    mark bigint PRIMARY KEY,
    at   bigint NOT NULL
);

CREATE INDEX done_by_age ON epitome.done (at);
