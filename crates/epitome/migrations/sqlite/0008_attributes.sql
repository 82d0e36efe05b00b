-- What other APIs keep of workspaces, sessions, authors and members: one JSON object with a part for each API, by its name.
-- Until here there was one API, Honcho's, and the column held its part alone. '' stays where nothing is kept.

ALTER TABLE workspaces RENAME COLUMN configuration TO attributes;
ALTER TABLE sessions RENAME COLUMN configuration TO attributes;
ALTER TABLE authors RENAME COLUMN configuration TO attributes;
ALTER TABLE members RENAME COLUMN configuration TO attributes;

UPDATE workspaces SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE sessions SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE authors SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE members SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
