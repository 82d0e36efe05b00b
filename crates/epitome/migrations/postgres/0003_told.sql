-- Events without a number are only read by workspace, so one index is enough, and every append writes one index less.

ALTER TABLE epitome.told DROP CONSTRAINT told_pkey;
ALTER TABLE epitome.told ADD PRIMARY KEY (workspace, tick);
DROP INDEX epitome.told_by_workspace;
