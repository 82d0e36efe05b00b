-- Summaries are numbered 1, 2, 3 … in each session: a number of the whole store would tell one tenant how much others
-- write. Those that are there keep their numbers, and the session counts on from its largest.

ALTER TABLE summaries RENAME TO summaries_before;

CREATE TABLE summaries (
    -- In which order they were kept, whosesoever they are. Shown to nobody.
    kept     INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    -- Its number in its session. Never given twice there: summaries go only with their session.
    id       INTEGER NOT NULL,
    scope    TEXT NOT NULL,
    slot     TEXT NOT NULL,
    through  INTEGER NOT NULL,
    state    TEXT NOT NULL CHECK (state IN ('standing', 'superseded', 'undone')),
    parent   INTEGER,
    created  INTEGER NOT NULL,
    -- What its model was asked, hashed: the same question need not be asked twice.
    asked    TEXT,
    -- Everything else that is known of it.
    facts    TEXT NOT NULL,
    text     TEXT NOT NULL,
    -- What it can be rendered from in another size, or built upon; dropped when it is long superseded. Last,
    -- and large: whoever does not ask for it does not read past it.
    sources  TEXT
);

INSERT INTO summaries (kept, session, id, scope, slot, through, state, parent, created, asked, facts, text, sources)
SELECT id, session, id, scope, slot, through, state, parent, created, asked, facts, text, sources
FROM summaries_before ORDER BY id;

-- And its indexes with it, whose names are free then.
DROP TABLE summaries_before;

CREATE UNIQUE INDEX summaries_by_number ON summaries (session, id);
CREATE INDEX summaries_by_slot ON summaries (session, scope, slot, through, id);
-- A slot has thousands in time. One of them stands, and two or three can be built upon.
CREATE INDEX summaries_standing ON summaries (session, scope, slot, id) WHERE state = 'standing';
CREATE INDEX summaries_asked ON summaries (asked) WHERE asked IS NOT NULL;
CREATE INDEX summaries_sources ON summaries (session, scope, slot) WHERE sources IS NOT NULL;
