"""The tables of the statistics file, and how an older file becomes a newer one. Schema 3.

`turns` has one row an answer, `blocks` its passes in order where a trace was asked for, `baselines` the plain decoding
measured on this machine. The three others are sums by day, kept by the triggers of `turns`, so that a view need not
read every turn. An unknown text is "", so is the drafter in plain decoding. No table holds the text of a prompt or an
answer.

A column is never renamed, and never means something else, without another entry in MIGRATIONS. Sums have no history:
after a migration they are made anew from the turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

APPLICATION_ID = 0x44464C53  # "DFLS", so that another program's file is told from ours
DIMENSIONS = (
    "day", "version", "pair", "target", "drafter", "target_hash", "drafter_hash", "backend", "device", "dtype",
    "quantisation", "batch", "block_size", "adaptive", "draft_vocabulary", "temperature", "kind", "depth",
)  # fmt: skip
"""What turns are told apart by in `sums`."""
SUMMED = (
    "turns", "interrupted", "prompt_tokens", "reused_tokens", "new_tokens", "committed", "passes", "accepted",
    "drafted", "ttft_ms", "prefill_ms", "decode_ms", "draft_ms", "verify_ms", "other_ms", "committed_committed",
    "committed_passes", "passes_passes", "later_later", "later_ms", "ms_ms",
)  # fmt: skip
"""What is added up: counts, times, and the products that the error of a ratio of sums is made of."""

DIMENSIONED = ", ".join(DIMENSIONS)

_BEGINNING = """
CREATE TABLE turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time INTEGER NOT NULL, day TEXT NOT NULL, command TEXT NOT NULL, version TEXT NOT NULL,
    pair TEXT NOT NULL, target TEXT NOT NULL, drafter TEXT NOT NULL, target_hash TEXT NOT NULL,
    drafter_hash TEXT NOT NULL, backend TEXT NOT NULL, device TEXT NOT NULL, dtype TEXT NOT NULL,
    quantisation TEXT NOT NULL, batch INTEGER NOT NULL, block_size INTEGER NOT NULL, context INTEGER, thinking INTEGER,
    temperature REAL NOT NULL, top_k INTEGER NOT NULL, top_p REAL NOT NULL, min_p REAL NOT NULL,
    repetition_penalty REAL NOT NULL, presence_penalty REAL NOT NULL, seed INTEGER,
    kind TEXT NOT NULL, depth INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL, reused_tokens INTEGER NOT NULL, new_tokens INTEGER NOT NULL,
    thinking_tokens INTEGER NOT NULL, reason TEXT NOT NULL, interrupted INTEGER NOT NULL,
    ttft_ms REAL NOT NULL, prefill_ms REAL NOT NULL, decode_ms REAL NOT NULL, draft_ms REAL NOT NULL,
    verify_ms REAL NOT NULL, other_ms REAL NOT NULL,
    committed INTEGER NOT NULL, passes INTEGER NOT NULL, accepted INTEGER NOT NULL, drafted INTEGER NOT NULL,
    tau REAL, acceptance_rate REAL, tokens_per_s REAL,
    lengths TEXT NOT NULL, positions TEXT NOT NULL
);
CREATE INDEX turns_by_day ON turns (day);
CREATE TABLE blocks (turn INTEGER PRIMARY KEY, blocks TEXT NOT NULL);
CREATE TABLE baselines (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, target TEXT NOT NULL, target_hash TEXT NOT NULL,
    backend TEXT NOT NULL, device TEXT NOT NULL, dtype TEXT NOT NULL, tokens INTEGER NOT NULL, ms REAL NOT NULL
);
"""
# Before it, a hash was of other parts of a checkpoint: it must not pass for another checkpoint.
_QUANTISED_AND_ADAPTIVE = """
ALTER TABLE turns ADD COLUMN adaptive INTEGER NOT NULL DEFAULT -1;
ALTER TABLE baselines ADD COLUMN quantisation TEXT NOT NULL DEFAULT 'none';
UPDATE baselines SET quantisation = COALESCE((
    SELECT turns.quantisation FROM turns
    WHERE turns.target = baselines.target AND turns.target_hash = baselines.target_hash LIMIT 1
), 'none');
UPDATE turns SET target_hash = '', drafter_hash = '';
UPDATE baselines SET target_hash = '';
"""
# Before the second schema all was drafted, and in plain decoding nothing is.
_DRAFT_VOCABULARY = """
ALTER TABLE turns ADD COLUMN draft_vocabulary INTEGER NOT NULL DEFAULT -1;
UPDATE turns SET draft_vocabulary = 0 WHERE adaptive = -1 OR drafter = '';
"""
_SUMS = """
CREATE TABLE sums (
    day TEXT, version TEXT, pair TEXT, target TEXT, drafter TEXT, target_hash TEXT, drafter_hash TEXT, backend TEXT,
    device TEXT, dtype TEXT, quantisation TEXT, batch INTEGER, block_size INTEGER, adaptive INTEGER,
    draft_vocabulary INTEGER, temperature REAL, kind TEXT, depth INTEGER,
    first INTEGER, last INTEGER, turns INTEGER, interrupted INTEGER, prompt_tokens INTEGER, reused_tokens INTEGER,
    new_tokens INTEGER, committed INTEGER, passes INTEGER, accepted INTEGER, drafted INTEGER, ttft_ms REAL,
    prefill_ms REAL, decode_ms REAL, draft_ms REAL, verify_ms REAL, other_ms REAL, committed_committed INTEGER,
    committed_passes INTEGER, passes_passes INTEGER, later_later INTEGER, later_ms REAL, ms_ms REAL,
    PRIMARY KEY (day, version, pair, target, drafter, target_hash, drafter_hash, backend, device, dtype, quantisation,
        batch, block_size, adaptive, draft_vocabulary, temperature, kind, depth)
) WITHOUT ROWID;
CREATE TABLE length_sums (
    day TEXT, pair TEXT, backend TEXT, length INTEGER, blocks INTEGER, PRIMARY KEY (day, pair, backend, length)
) WITHOUT ROWID;
CREATE TABLE position_sums (
    day TEXT, pair TEXT, backend TEXT, position INTEGER, drafted INTEGER, tested INTEGER, accepted INTEGER,
    PRIMARY KEY (day, pair, backend, position)
) WITHOUT ROWID;
CREATE VIEW turn_sums AS SELECT
    day, version, pair, target, drafter, target_hash, drafter_hash, backend, device, dtype, quantisation, batch,
    block_size, adaptive, draft_vocabulary, temperature, kind, depth,
    id AS first, id AS last, 1 AS turns, interrupted, prompt_tokens, reused_tokens, new_tokens, committed, passes,
    accepted, drafted, ttft_ms, prefill_ms, decode_ms, draft_ms, verify_ms, other_ms,
    committed * committed AS committed_committed, committed * passes AS committed_passes,
    passes * passes AS passes_passes, (new_tokens - 1) * (new_tokens - 1) AS later_later,
    (new_tokens - 1) * decode_ms AS later_ms, decode_ms * decode_ms AS ms_ms
FROM turns;
CREATE VIEW turn_lengths AS SELECT
    turns.id, day, pair, backend, CAST(each.key AS INTEGER) AS length, each.value AS blocks
FROM turns, json_each(turns.lengths) AS each;
CREATE VIEW turn_positions AS SELECT
    turns.id, day, pair, backend, each.key + 1 AS position, json_extract(each.value, '$[0]') AS drafted,
    json_extract(each.value, '$[1]') AS tested, json_extract(each.value, '$[2]') AS accepted
FROM turns, json_each(turns.positions) AS each;
"""
_ADDED = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMMED)
_ADD = f"""
CREATE TRIGGER add_turn AFTER INSERT ON turns BEGIN
    INSERT INTO sums SELECT * FROM turn_sums WHERE first = NEW.id
        ON CONFLICT ({DIMENSIONED}) DO UPDATE SET last = excluded.last, {_ADDED};
    INSERT INTO length_sums SELECT day, pair, backend, length, blocks FROM turn_lengths WHERE id = NEW.id
        ON CONFLICT (day, pair, backend, length) DO UPDATE SET blocks = blocks + excluded.blocks;
    INSERT INTO position_sums SELECT day, pair, backend, position, drafted, tested, accepted FROM turn_positions
        WHERE id = NEW.id
        ON CONFLICT (day, pair, backend, position) DO UPDATE SET drafted = drafted + excluded.drafted,
            tested = tested + excluded.tested, accepted = accepted + excluded.accepted;
END;
"""  # noqa: S608 (names of columns)
MIGRATIONS = (_BEGINNING, _QUANTISED_AND_ADAPTIVE, _DRAFT_VOCABULARY)
"""What makes a file of schema n + 1 of one of schema n; the first makes it of nothing. Sums are not part of them."""
SCHEMA = len(MIGRATIONS)
SUM_TABLES = ("sums", "length_sums", "position_sums")
TABLES = ("turns", "blocks", "baselines", *SUM_TABLES)
_DROP = "DROP TRIGGER IF EXISTS add_turn;\n" + "".join(
    f"DROP {kind} IF EXISTS {name};\n"
    for kind, names in (("VIEW", ("turn_sums", "turn_lengths", "turn_positions")), ("TABLE", SUM_TABLES))
    for name in names
)
REBUILD = f"""{_DROP}{_SUMS}
INSERT INTO sums SELECT {DIMENSIONED}, MIN(first), MAX(last), {", ".join(f"SUM({name})" for name in SUMMED)}
    FROM turn_sums GROUP BY {DIMENSIONED};
INSERT INTO length_sums SELECT day, pair, backend, length, SUM(blocks) FROM turn_lengths GROUP BY 1, 2, 3, 4;
INSERT INTO position_sums SELECT day, pair, backend, position, SUM(drafted), SUM(tested), SUM(accepted)
    FROM turn_positions GROUP BY 1, 2, 3, 4;
{_ADD}"""  # noqa: S608
"""Makes the tables of sums, with all that keeps them, anew from the turns."""


def run_script(connection: Connection, script: str) -> None:
    """Its statements one by one, within whatever transaction there is; `executescript` would end that."""
    import sqlite3

    statement = ""
    for line in script.splitlines(keepends=True):
        for piece in _pieces(line):
            statement += piece
            if sqlite3.complete_statement(statement):
                connection.execute(statement)
                statement = ""
    assert not statement.strip(), statement


def _pieces(line: str) -> list[str]:
    """The line cut after each semicolon."""
    return [piece + ";" for piece in line.split(";")[:-1]] + [line.rsplit(";", 1)[-1]]
