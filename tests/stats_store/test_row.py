"""A row by hand, from events; and that no text is in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from dflash_cli.answering import answer
from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.stats_store.row import Hashes, baseline_of, blocks_of, depth_of, figures_of, row_of
from dflash_cli.trace import Recording, Step
from tests.scripted_model import scripted_model
from tests.stats_store.rows import entry, stats_of
from tests.test_replay import HEAD


def test_figures_by_hand() -> None:
    """Blocks of 4: two kept and one rejected; none; all three; two and then a stop (trimmed to 2)."""
    figures = figures_of(stats_of([(2, 3), (0, 3), (3, 3), (2, 2)], prompt=600))
    assert {key: figures[key] for key in ("committed", "passes", "accepted", "drafted", "new_tokens")} == {
        "committed": 3 + 1 + 4 + 3, "passes": 4, "accepted": 7, "drafted": 11, "new_tokens": 12,
    }  # fmt: skip
    assert figures["tau"] == 11 / 4
    assert figures["acceptance_rate"] == 7 / 11
    assert json.loads(figures["lengths"]) == {"1": 1, "3": 2, "4": 1}
    # [verified, verified with all before kept, kept] for drafts 1, 2 and 3.
    assert json.loads(figures["positions"]) == [[4, 4, 3], [4, 3, 3], [3, 2, 1]]
    assert (figures["decode_ms"], figures["draft_ms"], figures["verify_ms"], figures["other_ms"]) == (20, 4, 8, 8)
    assert figures["tokens_per_s"] == pytest.approx(11 / 0.020)
    assert (figures["prompt_tokens"], figures["reused_tokens"], figures["depth"]) == (600, 4, 512)


@pytest.mark.parametrize(("tokens", "depth"), [(0, 0), (511, 0), (512, 512), (1023, 512), (1024, 1024), (9000, 8192)])
def test_depths(tokens: int, depth: int) -> None:
    assert depth_of(tokens) == depth


def test_a_row_of_a_real_answer_holds_no_text(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, ["Sesquipedalian xylophones"], system="Mumblecrust")
    decoder = model.decoder()
    done = answer(model, decoder, model.encode(model.conversation("Flibbertigibbet?")))
    row = row_of(model, decoder, done.stats, done.text, "run", Hashes("h1", "h2"))
    values = asdict(row)
    assert (row.command, row.pair, row.target, row.drafter) == ("run", "scripted", "a-script", "a-guess")
    assert (row.target_hash, row.drafter_hash, row.backend, row.device) == ("h1", "h2", "scripted", "cpu")
    assert (row.kind, row.reason, row.interrupted, row.batch, row.block_size) == ("prose", "stop", 0, 1, 6)
    assert row.new_tokens == len("Sesquipedalian xylophones") + 1
    for word in ("Sesqui", "xylo", "Flibber", "Mumble"):
        assert word not in json.dumps(values)


def test_how_many_ids_drafts_are_chosen_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None in plain decoding, whatever the drafter could do."""
    model = scripted_model(tmp_path, ["ab"])
    for width, ids, known in ((None, None, 0), (None, range(50), 50), (1, range(50), 0)):
        decoder = model.decoder(width=width)
        monkeypatch.setattr(decoder.backend, "draft_ids", ids, raising=False)
        row = row_of(model, decoder, stats_of([(1, 1)]), "ab", "chat", Hashes())
        assert row.draft_vocabulary == known


def test_plain_decoding_has_no_drafter(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, ["ab"])
    decoder = model.decoder(width=1)
    done = answer(model, decoder, model.encode(model.conversation("x")))
    row = row_of(model, decoder, done.stats, done.text, "chat", Hashes("h1", "h2"))
    assert (row.drafter, row.drafter_hash, row.acceptance_rate, row.tau) == ("", "", None, 1.0)


def test_blocks_of_a_recording_by_hand() -> None:
    events = [
        (Prefilled(3, 0, (1,), 1.0), ("A",)),
        (BlockDrafted(3, (2, 3, 4)), ("b", "c", "d")),
        (BlockVerified(3, 1, (2, 9), 3, 1.0, 2.0), ("b", "x")),
        (BlockDrafted(5, (2, 3, 4)), ("b", "c", "d")),
        (BlockVerified(5, 1, (2,), 1, 1.5, 2.5), ("b",)),
        (BlockVerified(6, 0, (7,), 0, 0.0, 3.0), ("y",)),
        (BlockDrafted(7, (1, 1, 1)), ("", "", "")),
        (Finished("interrupted", 9.0), ("",)),
    ]
    recording = Recording(HEAD, tuple(Step(event, texts, 0.0) for event, texts in events))
    assert json.loads(blocks_of(recording)) == [[3, 3, 1, 2, 1.0, 2.0], [3, 1, 1, 1, 1.5, 2.5], [0, 0, 0, 1, 0.0, 3.0]]


def test_a_baseline_is_the_same_place(tmp_path: Path) -> None:
    baseline = baseline_of(entry(backend="flex").row, stats_of([(0, 0)] * 4))
    assert (baseline.target, baseline.target_hash, baseline.backend) == ("t", "aa", "flex")
    assert (baseline.tokens, baseline.ms) == (4, 20.0)
