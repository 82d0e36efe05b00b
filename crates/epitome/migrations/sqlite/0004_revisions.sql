-- Counted up by whatever changes what a context of the session may say, but for new messages, which `head` counts. So
-- one small row tells whether a context that was made before still holds.
ALTER TABLE sessions ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
-- The same for the workspace's settings.
ALTER TABLE workspaces ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
