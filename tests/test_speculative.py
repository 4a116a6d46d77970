"""The decoder: speculative text is the target's own, cut exactly, and the cache holds what it is said to hold."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import Backend
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.request import Request
from dflash_cli.sampling import SamplingParams
from dflash_cli.speculative import Decoder
from tests.fake_backend import DraftedBy, Propose, ScriptedBackend
from tests.tiny import VOCAB, make_drafter, make_engine, make_target

TARGET = make_target(seed=11)
DRAFTER = make_drafter(seed=12)
PROMPT = [5, 9, 200, 31, 7]
LONG = 60


def ids_of(events: list[Any]) -> list[int]:
    return [each for event in events if isinstance(event, Prefilled | BlockVerified) for each in event.new_ids]


def run(backend: Backend, prompt: list[int] = PROMPT, width: int | None = None, **request: Any) -> list[Any]:
    return list(Decoder(backend, width).generate(Request(prompt, **request)))


def plain_ids(prompt: list[int] = PROMPT, **request: Any) -> list[int]:
    return ids_of(run(make_engine(TARGET), prompt, **request))


REFERENCE = plain_ids(max_new_tokens=LONG)


def oracle(wrong: set[int]) -> Propose:
    """Drafts the target's own greedy text, except at the given slots."""

    def propose(text: list[int], count: int) -> list[int]:
        at = len(text) - len(PROMPT)
        own = (REFERENCE + [0] * count)[at : at + count]
        return [(each + 1) % VOCAB if slot in wrong else each for slot, each in enumerate(own, 1)]

    return propose


def hostile(text: list[int], count: int) -> list[int]:
    return [random.Random(len(text)).randrange(VOCAB) for _ in range(count)]


def test_the_reference_text_is_varied() -> None:
    assert len(set(REFERENCE)) > 10  # a text that repeats one id would hide most errors


def test_random_drafter_gives_the_plain_text() -> None:
    events = run(make_engine(TARGET, DRAFTER), max_new_tokens=LONG)
    assert ids_of(events) == REFERENCE
    assert isinstance(events[0], Prefilled)
    assert isinstance(events[-1], Finished)


@settings(max_examples=60)
@given(
    block_size=st.integers(2, 9),
    width=st.integers(1, 9),
    wrong=st.sets(st.integers(1, 8)),
    max_new=st.integers(1, LONG),
    stop_at=st.one_of(st.none(), st.integers(0, LONG - 1)),
    is_hostile=st.booleans(),
)
def test_any_drafter_any_cut_gives_the_plain_text(
    block_size: int, width: int, wrong: set[int], max_new: int, stop_at: int | None, is_hostile: bool
) -> None:
    backend = DraftedBy(make_engine(TARGET), hostile if is_hostile else oracle(wrong), block_size)
    stop_ids = frozenset() if stop_at is None else frozenset({REFERENCE[stop_at]})
    events = run(backend, width=min(width, block_size), max_new_tokens=max_new, stop_ids=stop_ids)
    first_stop = next((i for i, each in enumerate(REFERENCE) if each in stop_ids), LONG)
    expected = REFERENCE[: min(max_new, first_stop + 1)]
    assert ids_of(events) == expected
    assert events[-1].reason == ("stop" if first_stop < max_new else "length")
    check_counts(events, min(width, block_size))


def check_counts(events: list[Any], width: int) -> None:
    """Starts are contiguous, and accepted drafts are the ones that were drafted and committed."""
    place, drafts = len(PROMPT), ()
    for event in events:
        if isinstance(event, BlockDrafted):
            assert (event.start, len(event.ids)) == (place, width - 1)
            drafts = event.ids
        if isinstance(event, BlockVerified):
            assert event.start == place
            assert event.new_ids[: event.accepted] == drafts[: event.accepted]
            assert len(event.new_ids) <= event.accepted + 1 <= width
            assert event.accepted <= event.num_drafted <= width - 1
            place += len(event.new_ids)


def test_a_perfect_drafter_fills_every_block() -> None:
    events = run(DraftedBy(make_engine(TARGET), oracle(set()), 6), max_new_tokens=1 + 6 * 5)
    assert [len(e.new_ids) for e in events if isinstance(e, BlockVerified)] == [6] * 5


def test_a_stop_inside_the_accepted_run_counts_nothing_after_it() -> None:
    stop = frozenset({REFERENCE[3]})
    events = run(DraftedBy(make_engine(TARGET), oracle(set()), 9), max_new_tokens=LONG, stop_ids=stop)
    last = events[-2]
    assert (last.accepted, last.num_drafted, len(last.new_ids)) == (3, 3, 3)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_batch_gives_each_prompt_its_plain_text(rows: int) -> None:
    rng = random.Random(3)
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randrange(2, 30))] for _ in range(7)]
    caps = [5, 40, 17, 1, 33, 24, 9]
    requests = [Request(p, max_new_tokens=c) for p, c in zip(prompts, caps, strict=True)]
    got: dict[int, list[Any]] = {}
    for index, event in Decoder(make_engine(TARGET, DRAFTER, batch_size=rows)).generate_many(requests):
        got.setdefault(index, []).append(event)
    for index, prompt in enumerate(prompts):
        assert ids_of(got[index]) == plain_ids(prompt, max_new_tokens=caps[index])


@pytest.mark.parametrize("turns", [2, 20])
def test_a_conversation_equals_fresh_prefills(turns: int) -> None:
    rng = random.Random(turns)
    decoder = Decoder(make_engine(TARGET, DRAFTER, max_len=500))
    text: list[int] = []
    held = 0
    for _ in range(turns):
        text = [*text, *(rng.randrange(VOCAB) for _ in range(rng.randrange(1, 9)))]
        events = list(decoder.generate(Request(text, max_new_tokens=11)))
        fresh = run(make_engine(TARGET, DRAFTER, max_len=500), text, max_new_tokens=11)
        assert ids_of(events) == ids_of(fresh)
        assert lengths(events) == lengths(fresh)  # the drafter's context was kept as well as the target's
        assert events[0].reused_len == held
        text = text + ids_of(events)
        held = len(text) - 1  # the last id was committed but never forwarded


def lengths(events: list[Any]) -> list[int]:
    return [len(event.new_ids) for event in events if isinstance(event, BlockVerified)]


def test_an_interrupt_anywhere_leaves_a_usable_cache() -> None:
    fresh = run(make_engine(TARGET, DRAFTER), max_new_tokens=20)
    for stop_after in range(1, 6):
        decoder = Decoder(make_engine(TARGET, DRAFTER))
        events = decoder.generate(Request([*PROMPT[:3], 77, 78, 79], max_new_tokens=30))
        for _ in range(stop_after):
            next(events)
        events.close()
        assert ids_of(list(decoder.generate(Request(PROMPT, max_new_tokens=20)))) == ids_of(fresh)


@pytest.mark.parametrize("call", ["prefill", "verify", "draft"])
def test_ctrl_c_inside_a_backend_call_leaves_a_usable_cache(call: str) -> None:
    decoder = Decoder(make_engine(TARGET, DRAFTER))
    own = getattr(decoder.backend, call)
    calls = iter(range(100))

    def interrupted(*args: Any) -> Any:
        result = own(*args)
        if next(calls) == (0 if call == "prefill" else 1):
            raise KeyboardInterrupt
        return result

    setattr(decoder.backend, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(decoder.generate(Request([*PROMPT, 3, 3], max_new_tokens=30)))
    assert ids_of(list(decoder.generate(Request(PROMPT, max_new_tokens=LONG)))) == REFERENCE


def test_the_same_prompt_again_prefills_one_id() -> None:
    backend = ScriptedBackend([[1, 2, 3], [1, 2, 3]], vocab_size=VOCAB, end_id=0)
    decoder = Decoder(backend)
    for _ in range(2):
        events = list(decoder.generate(Request(PROMPT, stop_ids=frozenset({0}))))
    assert backend.prefilled == [len(PROMPT), 1]
    assert events[0].reused_len == len(PROMPT) - 1
    assert ids_of(events) == [1, 2, 3, 0]


SAMPLED = [
    SamplingParams(temperature=0.9, seed=4),
    SamplingParams(temperature=1.3, top_k=20, top_p=0.9, min_p=0.02, seed=5),
    SamplingParams(repetition_penalty=1.6),
    SamplingParams(temperature=1.0, repetition_penalty=1.2, presence_penalty=0.8, seed=6),
]


@pytest.mark.parametrize("params", SAMPLED, ids=str)
@pytest.mark.parametrize("is_hostile", [False, True])
def test_sampled_text_is_the_plain_sampled_text(params: SamplingParams, is_hostile: bool) -> None:
    plain = plain_ids(params=params, max_new_tokens=LONG)

    def peek(text: list[int], count: int) -> list[int]:
        at = len(text) - len(PROMPT)
        return (plain + [0] * count)[at : at + count]

    backend = DraftedBy(make_engine(TARGET), hostile if is_hostile else peek, 6)
    events = run(backend, params=params, max_new_tokens=LONG)
    assert ids_of(events) == plain
    assert is_hostile or max(lengths(events)) == 6


def test_seeds_decide_the_text() -> None:
    hot = [plain_ids(params=SamplingParams(temperature=1.5, seed=s), max_new_tokens=30) for s in (1, 1, 2, None, None)]
    assert hot[0] == hot[1]
    assert len({tuple(each) for each in hot}) == 4


def test_a_penalty_sees_the_ids_drafted_before_a_slot() -> None:
    params = SamplingParams(presence_penalty=1e6)
    plain = plain_ids(params=params, max_new_tokens=LONG)
    assert len(set(plain)) == LONG  # no id can come twice
    backend = DraftedBy(make_engine(TARGET), lambda text, n: [plain[len(text) - len(PROMPT)]] * n, 6)
    assert ids_of(run(backend, params=params, max_new_tokens=LONG)) == plain


def test_prompts_that_cannot_be_answered() -> None:
    engine = make_engine(TARGET, max_len=8)
    with pytest.raises(DFlashError, match="empty"):
        run(engine, [])
    with pytest.raises(DFlashError, match="9 tokens and the context holds 8"):
        run(engine, [1] * 9)
    with pytest.raises(UsageError, match="max_new_tokens is 0"):
        run(engine, max_new_tokens=0)
    with pytest.raises(UsageError, match="expected 1 to 6"):
        Decoder(make_engine(TARGET, DRAFTER), 7)
    with pytest.raises(UsageError, match="there is no drafter, only blocks of 1; --draft NAME, or"):
        Decoder(make_engine(TARGET), 4)


def test_the_context_limit_is_exact() -> None:
    events = run(make_engine(TARGET, DRAFTER, max_len=20))
    assert ids_of(events) == REFERENCE[:15]
    assert events[-1].reason == "length"


class Finder:
    """Stops after a fixed number of ids, as a stop string that ends in that id would."""

    def __init__(self, after: int) -> None:
        self.after, self.count = after, 0
        self.stopped_after: int | None = None

    def push(self, ids: Any) -> str:
        self.count += len(ids)
        if self.count >= self.after:
            self.stopped_after = self.after
        return ""


@pytest.mark.parametrize("after", range(1, 14))
def test_a_stop_string_cuts_to_the_id(after: int) -> None:
    backend = DraftedBy(make_engine(TARGET), oracle({4}), 6)
    events = run(backend, max_new_tokens=13, finder=lambda: Finder(after))
    assert ids_of(events) == REFERENCE[:after]
    assert events[-1].reason == "stop"
    check_counts(events, 6)


def test_logits_are_read_once_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: reads.append(1) or original(self))
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("a second host synchronisation"))
    decoder = Decoder(make_engine(TARGET, DRAFTER))
    events = list(decoder.generate(Request(PROMPT, max_new_tokens=LONG)))
    assert len(reads) == 1 + 2 * len(lengths(events))  # on a CPU the drafts are told before they are verified
    reads.clear()
    decoder.tells_early = False  # as on a GPU, where that would be a second synchronisation
    late = list(decoder.generate(Request(PROMPT, max_new_tokens=LONG)))
    assert len(reads) == 1 + len(lengths(late))
    assert ids_of(late) == ids_of(events)
    assert [type(event) for event in late] == [type(event) for event in events]


def test_another_answer_between_draft_and_verify_is_noticed() -> None:
    decoder = Decoder(make_engine(TARGET, DRAFTER))
    first = decoder.generate(Request(PROMPT, max_new_tokens=LONG))
    while not isinstance(next(first), BlockDrafted):
        pass
    assert ids_of(list(decoder.generate(Request([9, 8, 7], max_new_tokens=4)))) == plain_ids(
        [9, 8, 7], max_new_tokens=4
    )
    with pytest.raises(DFlashError, match="begun another answer"):
        next(first)
