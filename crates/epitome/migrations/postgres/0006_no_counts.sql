-- Moves the counters of slots from the session's row back into the slots' own rows.

UPDATE epitome.slots s
SET state = (s.state::jsonb || jsonb_build_object('since', c.value -> 2, 'due_at', c.value -> 3))::text
FROM epitome.sessions o CROSS JOIN LATERAL jsonb_array_elements(o.counts::jsonb) c
WHERE o.counts <> '' AND s.session = o.id AND s.scope = c.value ->> 0 AND s.name = c.value ->> 1;

ALTER TABLE epitome.sessions DROP COLUMN counts, DROP COLUMN version;
