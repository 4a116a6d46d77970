BEGIN TRANSACTION;
CREATE TABLE baselines (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, target TEXT NOT NULL, target_hash TEXT NOT NULL,
    backend TEXT NOT NULL, device TEXT NOT NULL, dtype TEXT NOT NULL, tokens INTEGER NOT NULL, ms REAL NOT NULL
, quantisation TEXT NOT NULL DEFAULT 'none');
INSERT INTO "baselines" VALUES(1,1,'t','aa','eager','cpu','float32',10,100.0,'Q4_1');
INSERT INTO "baselines" VALUES(2,2,'other','','eager','cpu','float32',3,9.0,'none');
CREATE TABLE blocks (turn INTEGER PRIMARY KEY, blocks TEXT NOT NULL);
INSERT INTO "blocks" VALUES(2,'[[3,2,1,2,1.0,2.0]]');
CREATE TABLE length_sums (
    day TEXT, pair TEXT, backend TEXT, length INTEGER, blocks INTEGER, PRIMARY KEY (day, pair, backend, length)
) WITHOUT ROWID;
INSERT INTO "length_sums" VALUES('2026-01-31','p','eager',1,1);
INSERT INTO "length_sums" VALUES('2026-01-31','p','eager',2,1);
INSERT INTO "length_sums" VALUES('2026-01-31','p','eager',3,1);
INSERT INTO "length_sums" VALUES('2026-02-01','q','eager',1,1);
INSERT INTO "length_sums" VALUES('2026-02-01','q','eager',3,1);
CREATE TABLE position_sums (
    day TEXT, pair TEXT, backend TEXT, position INTEGER, drafted INTEGER, tested INTEGER, accepted INTEGER,
    PRIMARY KEY (day, pair, backend, position)
) WITHOUT ROWID;
INSERT INTO "position_sums" VALUES('2026-01-31','p','eager',1,3,3,2);
INSERT INTO "position_sums" VALUES('2026-01-31','p','eager',2,3,2,1);
INSERT INTO "position_sums" VALUES('2026-01-31','p','eager',3,2,1,0);
INSERT INTO "position_sums" VALUES('2026-02-01','q','eager',1,2,2,1);
INSERT INTO "position_sums" VALUES('2026-02-01','q','eager',2,2,1,1);
INSERT INTO "position_sums" VALUES('2026-02-01','q','eager',3,2,1,0);
CREATE TABLE sums (
    day TEXT, version TEXT, pair TEXT, target TEXT, drafter TEXT, target_hash TEXT, drafter_hash TEXT, backend TEXT,
    device TEXT, dtype TEXT, quantisation TEXT, batch INTEGER, block_size INTEGER, adaptive INTEGER, temperature REAL,
    kind TEXT, depth INTEGER,
    first INTEGER, last INTEGER, turns INTEGER, interrupted INTEGER, prompt_tokens INTEGER, reused_tokens INTEGER,
    new_tokens INTEGER, committed INTEGER, passes INTEGER, accepted INTEGER, drafted INTEGER, ttft_ms REAL,
    prefill_ms REAL, decode_ms REAL, draft_ms REAL, verify_ms REAL, other_ms REAL, committed_committed INTEGER,
    committed_passes INTEGER, passes_passes INTEGER, later_later INTEGER, later_ms REAL, ms_ms REAL,
    PRIMARY KEY (day, version, pair, target, drafter, target_hash, drafter_hash, backend, device, dtype, quantisation,
        batch, block_size, adaptive, temperature, kind, depth)
) WITHOUT ROWID;
INSERT INTO "sums" VALUES('2026-01-31','1.0','p','t','d','aa','bb','eager','cpu','float32','Q4_1',1,4,0,0.0,'prose',0,1,1,1,0,10,4,5,4,2,2,6,5.2090035751461982727e-03,50.0,10.0,2.0,4.0,4.0,16,8,4,16,40.0,100.0);
INSERT INTO "sums" VALUES('2026-01-31','1.0','p','t','d','aa','bb','eager','cpu','float32','Q4_1',1,4,1,0.0,'code',0,2,2,1,0,10,4,3,2,1,1,2,2.54099722951650619506e-03,50.0,5.0,1.0,2.0,2.0,4,2,1,4,10.0,25.0);
INSERT INTO "sums" VALUES('2026-02-01','1.0','q','u','','aa','bb','eager','cpu','float32','none',1,4,0,0.0,'prose',0,3,3,1,0,10,4,5,4,2,2,6,3.13000055029988288879e-03,50.0,10.0,2.0,4.0,4.0,16,8,4,16,40.0,100.0);
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
, adaptive INTEGER NOT NULL DEFAULT -1);
INSERT INTO "turns" VALUES(1,1769860800000,'2026-01-31','chat','1.0','p','t','d','aa','bb','eager','cpu','float32','Q4_1',1,4,512,NULL,0.0,0,1.0,0.0,1.0,0.0,NULL,'prose',0,10,4,5,0,'stop',0,5.2090035751461982727e-03,50.0,10.0,2.0,4.0,4.0,4,2,2,6,2.0,3.33333333333333314829e-01,400.0,'{"1": 1, "3": 1}','[[2, 2, 1], [2, 1, 1], [2, 1, 0]]',0);
INSERT INTO "turns" VALUES(2,1769860800000,'2026-01-31','chat','1.0','p','t','d','aa','bb','eager','cpu','float32','Q4_1',1,4,512,NULL,0.0,0,1.0,0.0,1.0,0.0,NULL,'code',0,10,4,3,0,'stop',0,2.54099722951650619506e-03,50.0,5.0,1.0,2.0,2.0,2,1,1,2,2.0,0.5,400.0,'{"2": 1}','[[1, 1, 1], [1, 1, 0]]',1);
INSERT INTO "turns" VALUES(3,1769860800000,'2026-02-01','chat','1.0','q','u','','aa','bb','eager','cpu','float32','none',1,4,512,NULL,0.0,0,1.0,0.0,1.0,0.0,NULL,'prose',0,10,4,5,0,'stop',0,3.13000055029988288879e-03,50.0,10.0,2.0,4.0,4.0,4,2,2,6,2.0,3.33333333333333314829e-01,400.0,'{"1": 1, "3": 1}','[[2, 2, 1], [2, 1, 1], [2, 1, 0]]',0);
CREATE INDEX turns_by_day ON turns (day);
CREATE VIEW turn_sums AS SELECT
    day, version, pair, target, drafter, target_hash, drafter_hash, backend, device, dtype, quantisation, batch,
    block_size, adaptive, temperature, kind, depth,
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
CREATE TRIGGER add_turn AFTER INSERT ON turns BEGIN
    INSERT INTO sums SELECT * FROM turn_sums WHERE first = NEW.id
        ON CONFLICT (day, version, pair, target, drafter, target_hash, drafter_hash, backend, device, dtype, quantisation, batch, block_size, adaptive, temperature, kind, depth) DO UPDATE SET last = excluded.last, turns = turns + excluded.turns, interrupted = interrupted + excluded.interrupted, prompt_tokens = prompt_tokens + excluded.prompt_tokens, reused_tokens = reused_tokens + excluded.reused_tokens, new_tokens = new_tokens + excluded.new_tokens, committed = committed + excluded.committed, passes = passes + excluded.passes, accepted = accepted + excluded.accepted, drafted = drafted + excluded.drafted, ttft_ms = ttft_ms + excluded.ttft_ms, prefill_ms = prefill_ms + excluded.prefill_ms, decode_ms = decode_ms + excluded.decode_ms, draft_ms = draft_ms + excluded.draft_ms, verify_ms = verify_ms + excluded.verify_ms, other_ms = other_ms + excluded.other_ms, committed_committed = committed_committed + excluded.committed_committed, committed_passes = committed_passes + excluded.committed_passes, passes_passes = passes_passes + excluded.passes_passes, later_later = later_later + excluded.later_later, later_ms = later_ms + excluded.later_ms, ms_ms = ms_ms + excluded.ms_ms;
    INSERT INTO length_sums SELECT day, pair, backend, length, blocks FROM turn_lengths WHERE id = NEW.id
        ON CONFLICT (day, pair, backend, length) DO UPDATE SET blocks = blocks + excluded.blocks;
    INSERT INTO position_sums SELECT day, pair, backend, position, drafted, tested, accepted FROM turn_positions
        WHERE id = NEW.id
        ON CONFLICT (day, pair, backend, position) DO UPDATE SET drafted = drafted + excluded.drafted,
            tested = tested + excluded.tested, accepted = accepted + excluded.accepted;
END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('turns',3);
COMMIT;
