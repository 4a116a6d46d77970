"""What the decoder's cache holds across turns, rows and cuts, and what penalties and seeds depend on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dflash_cli.errors import DFlashError
from dflash_cli.events import BlockVerified
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.fake_backend import DraftedBy
from tests.test_speculative import DRAFTER, LONG, PROMPT, REFERENCE, TARGET, ids_of, oracle, plain_ids, run
from tests.tiny import VOCAB, make_engine


def greedy(prompt: list[int]) -> int:
    """The target's first choice after a prompt."""
    return int(make_engine(TARGET).prefill(torch.tensor(prompt), 0).argmax())


def test_an_interrupted_prefill_forgets_what_it_overwrote() -> None:
    decoder = Decoder(make_engine(TARGET, DRAFTER))
    long = [*PROMPT, *range(40, 60)]
    list(decoder.generate(Request(long, max_new_tokens=5)))
    own = decoder.backend.prefill

    def cut(*args: Any) -> Any:
        own(*args)
        raise KeyboardInterrupt

    decoder.backend.prefill = cut  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        list(decoder.generate(Request([*PROMPT, 1, 2, 3, 4, 5, 6])))
    decoder.backend.prefill = own  # type: ignore[method-assign]
    assert ids_of(list(decoder.generate(Request(long, max_new_tokens=20)))) == plain_ids(long, max_new_tokens=20)


def test_an_idle_row_keeps_what_it_holds() -> None:
    decoder = Decoder(make_engine(TARGET, DRAFTER, batch_size=2))
    short, long = [3, 1, 4, 1, 5, 9, 2, 6], [7, 7, 8]
    list(decoder.generate_many([Request(short, max_new_tokens=2), Request(long, max_new_tokens=40)]))
    again = [*short, 60, 61]
    events = [event for _, event in decoder.generate_many([Request(again, max_new_tokens=20)])]
    assert events[0].reused_len >= len(short) - 1  # type: ignore[union-attr]
    assert ids_of(events) == plain_ids(again, max_new_tokens=20)


def test_a_narrow_block_verifies_the_first_drafts() -> None:
    events = run(DraftedBy(make_engine(TARGET), oracle(set()), 6), width=3, max_new_tokens=1 + 3 * 5)
    assert [len(event.new_ids) for event in events if isinstance(event, BlockVerified)] == [3] * 5


def test_no_more_comes_than_the_context_holds() -> None:
    assert ids_of(run(make_engine(TARGET, DRAFTER, max_len=20), max_new_tokens=500)) == REFERENCE[:15]


def test_a_prompt_as_long_as_the_context_leaves_no_room() -> None:
    with pytest.raises(DFlashError, match="8 tokens and the context holds 8"):
        run(make_engine(TARGET, max_len=8), [1] * 8)


def test_a_stop_at_the_last_accepted_draft_counts_no_draft_after_it() -> None:
    stop = frozenset({REFERENCE[3]})
    last = run(DraftedBy(make_engine(TARGET), oracle({4}), 9), max_new_tokens=LONG, stop_ids=stop)[-2]
    assert (last.accepted, last.num_drafted, len(last.new_ids)) == (3, 3, 3)


def test_repetition_penalty_covers_the_prompt_and_presence_penalty_does_not() -> None:
    pairs = ([x, y] for x in range(VOCAB) for y in range(VOCAB))
    prompt = next([top, *p] for p in pairs if greedy([top := greedy(p), *p]) == top != p[-1])
    assert plain_ids(prompt, params=SamplingParams(repetition_penalty=1e9), max_new_tokens=1) != [prompt[0]]
    assert plain_ids(prompt, params=SamplingParams(presence_penalty=1e6), max_new_tokens=1) == [prompt[0]]


def test_presence_penalty_leaves_the_prompts_last_id_alone() -> None:
    echoed = next(x for x in range(VOCAB) if greedy([*PROMPT, x]) == x)
    assert plain_ids([*PROMPT, echoed], params=SamplingParams(presence_penalty=1e6), max_new_tokens=1) == [echoed]


def test_a_seeded_text_goes_on_where_it_was_cut() -> None:
    params = SamplingParams(temperature=1.2, seed=9)
    whole = plain_ids(params=params, max_new_tokens=30)
    assert plain_ids([*PROMPT, *whole[:10]], params=params, max_new_tokens=20) == whole[10:]
