-- Sessions, their messages, and the summaries of them.
--
-- Moments are milliseconds since the Unix epoch. JSON stands where nothing is ever looked up by it.

CREATE TABLE workspaces (
    name     TEXT PRIMARY KEY NOT NULL,
    -- A partial settings document; '' when nothing was set.
    settings TEXT NOT NULL DEFAULT '',
    created  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sessions (
    -- Never given twice, so that an id in an old answer cannot come to mean another session.
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace TEXT NOT NULL REFERENCES workspaces (name),
    name      TEXT NOT NULL,
    -- 'open'; 'hidden' while a fork is being copied; 'gone' while a deleted one is being removed.
    state     TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'hidden', 'gone')),
    -- By which name its tokens are counted. Fixed.
    encoding  TEXT NOT NULL,
    -- Where the log stands: see `epitome_core::track`. Head, turns and tokens are told apart, for people.
    tracker   TEXT NOT NULL,
    head      INTEGER NOT NULL,
    turns     INTEGER NOT NULL,
    tokens    INTEGER NOT NULL,
    -- The message that opened the turn under way; 0 before the first.
    opener    INTEGER NOT NULL,
    -- Where the newest call batch begins, and whether it is skipped.
    batch_from    INTEGER NOT NULL,
    batch_skipped INTEGER NOT NULL,
    -- Messages that are skipped, by whole batches.
    skipped   INTEGER NOT NULL,
    -- Up to which message words can be searched by the index; the rest is read.
    indexed   INTEGER NOT NULL DEFAULT 0,
    settings  TEXT NOT NULL DEFAULT '',
    metadata  TEXT NOT NULL DEFAULT '',
    created   INTEGER NOT NULL,
    updated   INTEGER NOT NULL
);

CREATE UNIQUE INDEX sessions_by_name ON sessions (workspace, name) WHERE state = 'open';
CREATE INDEX sessions_to_index ON sessions (id) WHERE state = 'open' AND indexed < head;
CREATE INDEX sessions_leftover ON sessions (state) WHERE state <> 'open';

CREATE TABLE messages (
    session     INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    role        INTEGER NOT NULL,
    -- Whose it is: a result belongs to its call's author. Who said it is in the body.
    author      TEXT,
    turn        INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    -- The running total: the tokens of all messages before this one.
    before      INTEGER NOT NULL,
    chars       INTEGER NOT NULL,
    longest     INTEGER NOT NULL,
    calls       INTEGER NOT NULL,
    answers     INTEGER NOT NULL,
    own_answers INTEGER NOT NULL,
    open        INTEGER NOT NULL,
    own_open    INTEGER NOT NULL,
    -- Bits: 1 leading, 2 opens a turn, 4 thinking, 8 stray.
    shape       INTEGER NOT NULL,
    pinned      INTEGER NOT NULL,
    skip        INTEGER NOT NULL,
    cut         INTEGER NOT NULL,
    own_cut     INTEGER NOT NULL,
    -- The message that opened its turn; 0 before the first.
    opener      INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    body        TEXT NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;

CREATE INDEX messages_by_author ON messages (session, author, seq) WHERE author IS NOT NULL;
CREATE INDEX messages_openers ON messages (session, author, seq) WHERE author IS NOT NULL AND (shape & 2) <> 0;
CREATE INDEX messages_pinned ON messages (session, seq) WHERE pinned <> 0;
CREATE INDEX messages_skipped ON messages (session, seq) WHERE skip <> 0;

-- One row a slot: the queue is this cursor.
CREATE TABLE slots (
    session  INTEGER NOT NULL,
    -- '' for the whole session, otherwise an author.
    scope    TEXT NOT NULL,
    name     TEXT NOT NULL,
    -- Where it stands: see `epitome_core::slot`. Coverage and firing are told apart, for people.
    state    TEXT NOT NULL,
    covered  INTEGER NOT NULL,
    due      INTEGER,
    active   INTEGER,
    -- From when on a worker may take it; NULL when there is nothing to do.
    ready_at INTEGER,
    -- Why that is: since when it is due, who holds it, what failed.
    work     TEXT NOT NULL,
    fence    INTEGER NOT NULL,
    PRIMARY KEY (session, scope, name)
) WITHOUT ROWID;

CREATE INDEX slots_ready ON slots (ready_at) WHERE ready_at IS NOT NULL;
CREATE INDEX slots_due ON slots (session) WHERE due IS NOT NULL;

CREATE TABLE summaries (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    session  INTEGER NOT NULL,
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

CREATE INDEX summaries_by_slot ON summaries (session, scope, slot, through);
-- A slot has thousands in time. One of them stands, and two or three can be built upon.
CREATE INDEX summaries_standing ON summaries (session, scope, slot) WHERE state = 'standing';
CREATE INDEX summaries_asked ON summaries (asked) WHERE asked IS NOT NULL;
CREATE INDEX summaries_sources ON summaries (session, scope, slot) WHERE sources IS NOT NULL;

-- Appends that were already done, by the caller's key: kept for a week.
CREATE TABLE idempotency (
    session INTEGER NOT NULL,
    key     TEXT NOT NULL,
    -- What was appended under it, hashed.
    body    BLOB NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

CREATE INDEX idempotency_by_age ON idempotency (created);

-- Every call of a model, failed ones too. It outlives its session: what was spent was spent.
CREATE TABLE usage (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace TEXT NOT NULL,
    session   TEXT NOT NULL,
    scope     TEXT NOT NULL,
    slot      TEXT NOT NULL,
    model     TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    input     INTEGER NOT NULL,
    cached    INTEGER NOT NULL,
    output    INTEGER NOT NULL,
    -- In millionths of the price table's money; NULL where no price is known.
    cost      INTEGER,
    millis    INTEGER NOT NULL,
    at        INTEGER NOT NULL
);

CREATE INDEX usage_by_time ON usage (workspace, at);

-- Words and parts of words in any script. A row's id is (session << 32) + seq. What goes in is folded already,
-- by the same code that folds queries, so the index must not fold once more in its own way.
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'trigram case_sensitive 1', detail = 'none'
);
