-- Most appends change only the counters of a slot. They are stored here until the slot's row is written for another reason,
-- so that an append writes one row for all slots of its session. '' if the slots' rows are up to date.

ALTER TABLE epitome.sessions ADD COLUMN counts text NOT NULL DEFAULT '';
