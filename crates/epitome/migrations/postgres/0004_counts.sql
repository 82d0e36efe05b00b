-- Most appends change nothing of a slot but what it counts. That stands here until the slot's own row is written for another
-- reason, so that an append writes one row for all slots of its session: '' where every slot's row says all.

ALTER TABLE epitome.sessions ADD COLUMN counts text NOT NULL DEFAULT '';
