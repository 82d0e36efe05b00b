-- What other APIs keep of workspaces, sessions, authors and members: one JSON object with a part for each API, by its name.
-- Until here there was one API, Honcho's, and the column held its part alone. '' stays where nothing is kept.

ALTER TABLE epitome.workspaces RENAME COLUMN configuration TO attributes;
ALTER TABLE epitome.sessions RENAME COLUMN configuration TO attributes;
ALTER TABLE epitome.authors RENAME COLUMN configuration TO attributes;
ALTER TABLE epitome.members RENAME COLUMN configuration TO attributes;

UPDATE epitome.workspaces SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE epitome.sessions SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE epitome.authors SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE epitome.members SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
