-- What was told is only ever looked for by its workspace: one index does, and every append writes one less.

ALTER TABLE epitome.told DROP CONSTRAINT told_pkey;
ALTER TABLE epitome.told ADD PRIMARY KEY (workspace, tick);
DROP INDEX epitome.told_by_workspace;
