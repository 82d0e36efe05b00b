-- Workspaces are worked for in turn, so each slot says whose it is: the next one's that waits longest is found without
-- looking at all those of the others.

ALTER TABLE slots ADD COLUMN workspace TEXT NOT NULL DEFAULT '';

UPDATE slots SET workspace = coalesce((SELECT workspace FROM sessions WHERE id = slots.session), '');

CREATE INDEX slots_in_turn ON slots (workspace, ready_at) WHERE ready_at IS NOT NULL;
