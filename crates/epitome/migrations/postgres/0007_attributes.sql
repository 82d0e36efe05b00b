-- Data of other APIs about workspaces, sessions, authors and members: a JSON object with one object per API, by its name.
-- Before, Honcho's was the only API, and the column contained its object alone. '' still means no data.

ALTER TABLE epitome.workspaces RENAME COLUMN configuration TO attributes;
ALTER TABLE epitome.sessions RENAME COLUMN configuration TO attributes;
ALTER TABLE epitome.authors RENAME COLUMN configuration TO attributes;
ALTER TABLE epitome.members RENAME COLUMN configuration TO attributes;

UPDATE epitome.workspaces SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE epitome.sessions SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE epitome.authors SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
UPDATE epitome.members SET attributes = '{"honcho":' || attributes || '}' WHERE attributes <> '';
