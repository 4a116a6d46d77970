"""The choice of the width, in simulated answers: drafts of several kinds on machines of several kinds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dflash_cli.costs import Costs
from dflash_cli.depth import ALLOWANCE, HIGHEST, OPENING, Depth
from tests.simulated_answers import MACHINES, PACKED, SEEDS, TEXTS, TOKENS, Answer, Fixed, Machine, fixed, laptop


@pytest.mark.parametrize("text", [name for name in TEXTS if name != "fast-switching"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_short_answer_is_not_slower_either(name: str, text: str) -> None:
    """The promise of 3 %, where costs are known, in answers of 64 tokens."""
    machine = MACHINES[name]
    for seed in range(6):
        depth = Depth(8, machine.calibrated(8))
        depth.new_turn()
        found = Answer(machine, TEXTS[text], seed).run(depth, 64)
        assert found.pace <= 1.03 * Answer(machine, TEXTS[text], seed).run(Fixed(1), 64).pace


@pytest.mark.parametrize(("turns", "tokens"), [(10, 20), (40, 5), (1, 64), (1, 2000)])
@pytest.mark.parametrize("name", MACHINES)
def test_turns_of_a_useless_drafter_are_hardly_slower(name: str, turns: int, tokens: int) -> None:
    machine = MACHINES[name]
    for seed in range(4):
        depth, answer = Depth(8, machine.calibrated(8)), Answer(machine, TEXTS["hopeless"], seed)
        for _ in range(turns):
            depth.new_turn()
            answer.run(depth, tokens)
        assert answer.pace <= 1.03 * Answer(machine, TEXTS["hopeless"], seed).run(Fixed(1), turns * tokens).pace


def test_a_turn_has_no_more_to_lose_than_earlier_ones_left() -> None:
    """A useless draft loses 0.4 steps here, five tokens earn an eighth: the loan pays for four, whatever the turn."""
    machine = MACHINES["laptop"]
    depth, answer = Depth(8, machine.calibrated(8)), Answer(machine, TEXTS["hopeless"], 0)
    for _ in range(12):
        depth.new_turn()
        answer.run(depth, 5)
    assert answer.widths[0] > 1, "the first answer begins with drafts at once"
    assert sum(width > 1 for width in answer.widths) <= 4


@pytest.mark.parametrize("name", ["laptop", "gpu", "steps"])
def test_good_drafts_are_used_from_the_first_block_on(name: str) -> None:
    """Three tokens a block, in answers of 64 tokens, over many of them: near the best width from the start."""
    machine, seeds = MACHINES[name], range(40)

    def ms(policy: Callable[[], Depth | Fixed]) -> float:
        return sum(Answer(machine, TEXTS["falling"], seed).run(policy(), 64).pace for seed in seeds)

    best = min(ms(lambda width=width: Fixed(width)) for width in range(2, 9))  # type: ignore[misc]
    assert best < 0.5 * len(seeds) * machine.verify_ms(1)
    assert best / ms(lambda: Depth(8, machine.calibrated(8))) >= 0.95


def test_a_block_is_charged_what_it_took_but_not_what_held_it_up() -> None:
    """The first draft of a probe also writes what waits, which the median of all drafts does not show."""
    left = {}
    for name, draft_ms in (
        ("usual", 6.0),
        ("longer", 10.0),
        ("held up", 600.0),
        ("quick", 1.0),
        ("none", float("nan")),
    ):
        depth = Depth(8, Costs({1: 30.0, 8: 36.0}, 6.0))
        depth.observe(8, 0, 7, draft_ms, 36.0)
        left[name] = OPENING + 1 - depth._chat.balance
    assert left["usual"] == left["quick"] == left["none"] == pytest.approx(42 / 30)
    assert left["longer"] == pytest.approx(46 / 30)
    assert left["held up"] == pytest.approx(1.25 * 42 / 30)


@pytest.mark.parametrize(("block_size", "calibrated"), [(8, True), (16, False)])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", MACHINES)
def test_never_much_slower_than_plain_and_near_the_best_width(
    name: str, text: str, block_size: int, calibrated: bool
) -> None:
    machine = MACHINES[name]
    policies = [Depth(block_size, machine.calibrated(block_size) if calibrated else Costs()) for _ in SEEDS]
    ours = [Answer(machine, TEXTS[text], seed).run(each) for seed, each in zip(SEEDS, policies, strict=True)]
    plain = [fixed(name, text, 1, seed) for seed in SEEDS]
    # Where nothing was measured before, the first passes may be dear ones; they come once.
    once = 0.0 if calibrated else 2 * (machine.verify_ms(block_size) + machine.draft_ms) / TOKENS
    for mine, its in zip(ours, plain, strict=True):
        assert mine.pace <= 1.03 * its.pace + once
    widths = [width for width in (2, 3, 4, 6, 8, 12, 16) if width <= block_size]
    best = min(sum(fixed(name, text, width, seed).warm_pace for seed in SEEDS) for width in widths)
    if sum(each.warm_pace for each in plain) > 1.1 * best:
        # Forty tokens of each kind are too few to follow every change.
        assert best / sum(each.warm_pace for each in ours) >= (0.8 if text == "fast-switching" else 0.95)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(sorted(MACHINES)), st.floats(0.0, 1.0), st.booleans())
@example(0, "steep", 0.875, False)  # a turn began with a block that an earlier one had earned
def test_no_order_of_good_and_bad_drafts_costs_more_than_the_allowance(
    seed: int, name: str, goodness: float, thinks: bool
) -> None:
    """With exact costs, at every point of a chat and of each turn: what is lost is the loan or 2.5 % of the tokens.

    Also where the drafter thinks much of its drafts (`thinks`), without a reason.
    """
    machine, chance = MACHINES[name], random.Random(seed)
    depth = Depth(8, Costs({width: machine.verify_ms(width) for width in range(1, 9)}, machine.draft_ms))
    lost, tokens, good = [0.0, 0.0], [0, 0], False
    for _ in range(600):
        if chance.random() < 0.02:
            depth.new_turn()
            lost[1], tokens[1] = 0.0, 0
        width, drafted, thought = depth.width(), depth.width() > 1, None
        if drafted and thinks:
            thought = [chance.random() ** 0.3 for _ in range(7)]
            width = depth.fitted([thought])
        good = not good if chance.random() < 0.1 else good
        accepted = width - 1 if width > 1 and good and chance.random() < goodness else 0
        draft_ms = machine.draft_ms if drafted else 0.0
        depth.observe(width, accepted, width - 1, draft_ms, machine.verify_ms(width), thought)
        for each in range(2):
            lost[each] += (draft_ms + machine.verify_ms(width)) / machine.verify_ms(1) - accepted - 1
            tokens[each] += accepted + 1
            assert lost[each] <= max(OPENING, ALLOWANCE * tokens[each]) + 1e-6


def test_an_adversary_that_lets_it_earn_first_gains_little() -> None:
    """Drafts are good until the account is full, bad while anything is left on it, and so on."""
    machine = MACHINES["laptop"]
    depth = Depth(8, Costs({width: machine.verify_ms(width) for width in range(1, 9)}, machine.draft_ms))
    ahead, most_ahead, most_behind, good = 0.0, 0.0, 0.0, True
    for _ in range(3000):
        width = depth.width()
        accepted = width - 1 if good else 0
        draft_ms = machine.draft_ms if width > 1 else 0.0
        depth.observe(width, accepted, width - 1, draft_ms, machine.verify_ms(width))
        gained = (1 + ALLOWANCE) * (accepted + 1) - (draft_ms + machine.verify_ms(width)) / machine.verify_ms(1)
        ahead += gained
        most_ahead = max(most_ahead, ahead)
        most_behind = max(most_behind, most_ahead - ahead)
        good = not good if width > 1 and depth.acceptance.rates()[0] > 0.9 else good and width == 1
    assert most_behind <= HIGHEST + 1e-6


def test_probes_take_little_of_any_stretch_of_plain_decoding() -> None:
    answer = Answer(MACHINES["laptop"], TEXTS["hopeless"], 1)
    answer.run(Depth(8, MACHINES["laptop"].calibrated(8)))
    probes = [width > 1 for width in answer.widths]
    for begin in range(100, len(probes) - 150, 10):
        # A probed block here takes 0.4 steps longer than the step it replaces.
        assert 0.4 * sum(probes[begin : begin + 150]) <= 0.03 * 150
    assert any(probes[-300:]), "it must not stop probing for ever"


@pytest.mark.parametrize("name", ["laptop", "gpu"])
def test_it_comes_back_soon_when_drafts_get_good(name: str) -> None:
    machine = MACHINES[name]
    for seed in SEEDS:
        answer = Answer(machine, lambda place, position: 0.05 if place < 600 else 0.9, seed)
        depth = Depth(8, machine.calibrated(8))
        answer.run(depth, 600)
        before = len(answer.widths)
        answer.run(depth, 400)
        wide = next(index for index in range(before, len(answer.widths)) if answer.widths[index] >= 6)
        assert wide - before <= 110


def test_it_gives_up_soon_when_drafts_get_bad() -> None:
    machine = MACHINES["laptop"]
    answer = Answer(machine, lambda place, position: 0.9 if place < 600 else 0.0, 0)
    depth = Depth(8, machine.calibrated(8))
    answer.run(depth, 600)
    before = len(answer.widths)
    answer.run(depth, 100)
    assert sum(width > 1 for width in answer.widths[before:]) <= 25


def test_a_new_turn_is_probed_at_once_and_what_was_learnt_is_kept() -> None:
    machine = MACHINES["laptop"]
    answer = Answer(machine, TEXTS["hopeless"], 0)
    plain = Depth(8, machine.calibrated(8))
    answer.run(plain, 1000)
    answer.run(plain, next(n for n in range(1, 200) if plain.width() == 1))
    plain.new_turn()
    before = len(answer.widths)
    answer.run(plain, 40)
    assert any(width > 1 for width in answer.widths[before : before + 40])
    wide = Depth(8, machine.calibrated(8))
    Answer(machine, TEXTS["maths"], 0).run(wide, 300)
    width = wide.width()
    wide.new_turn()
    assert wide.width() == width > 4


@pytest.mark.parametrize("name", ["laptop", "gpu", "steep"])
def test_what_one_answer_won_is_not_lost_in_the_next(name: str) -> None:
    machine = MACHINES[name]
    for seed in SEEDS:
        answer = Answer(machine, lambda place, _position: 0.9 if place < 400 else 0.0, seed)
        depth = Depth(8, machine.calibrated(8))
        answer.run(depth, 400)
        depth.new_turn()
        place, ms = answer.place, answer.ms
        answer.run(depth, 120)
        plain = machine.verify_ms(1) * (answer.place - place)
        assert answer.ms - ms <= 1.02 * plain + 2 * machine.verify_ms(1)


def test_a_turn_does_not_begin_with_a_block_that_only_the_last_one_could_pay() -> None:
    """Eight rows lose 2.07 steps if no draft is kept: an account at its highest pays that, a new turn's does not."""
    machine = MACHINES["steep"]
    depth = Depth(8, Costs({width: machine.verify_ms(width) for width in range(1, 9)}, machine.draft_ms))
    for _ in range(40):
        width = depth.width()
        depth.observe(width, width - 1, width - 1, machine.draft_ms, machine.verify_ms(width))
    assert depth.width() == 8
    depth.new_turn()
    width = depth.width()
    assert 1 < width < 8
    assert (machine.draft_ms + machine.verify_ms(width)) / machine.verify_ms(1) - 1 <= OPENING


def test_without_a_calibration_it_opens_with_the_trained_block_and_plain_steps() -> None:
    depth = Depth(8, Costs())
    seen = []
    for _ in range(5):
        width = depth.width()
        seen.append(width)
        depth.observe(width, width - 1, width - 1, 6.0 * (width > 1), laptop(width))
    assert seen == [8, 1, 8, 1, 1]
    assert depth.width() > 1


@pytest.mark.parametrize("accepted", [0, 7])
def test_where_speculation_cannot_pay_it_is_hardly_tried(accepted: int) -> None:
    depth = Depth(8, Costs({1: 30.0, 8: 240.0}, 6.0))
    widths = []
    for _ in range(2000):
        width = depth.width()
        widths.append(width)
        depth.observe(width, min(accepted, width - 1), width - 1, 6.0 * (width > 1), 30.0 * width)
    assert sum(width > 1 for width in widths) <= 20


def test_without_a_drafter_it_is_always_plain() -> None:
    depth = Depth(1, Costs())
    for _ in range(50):
        assert depth.width() == 1
        depth.observe(1, 0, 0, 0.0, 30.0)


def test_only_widths_that_the_backend_is_ready_for() -> None:
    machine = MACHINES["steep"]
    depth = Depth(16, machine.calibrated(16), widths=[4, 16])
    answer = Answer(machine, TEXTS["falling"], 0).run(depth)
    assert set(answer.widths) <= {1, 4, 16}
    assert answer.widths.count(4) > 100


def test_a_block_cut_narrower_than_asked_for_is_taken_as_it_was() -> None:
    depth = Depth(8, MACHINES["laptop"].calibrated(8))
    for _ in range(300):
        width = min(depth.width(), 5)
        depth.observe(width, width - 1, width - 1, 6.0 * (width > 1), laptop(width))
    assert depth.width() == 8
    assert depth.acceptance.tested[4:] == [0.0, 0.0, 0.0]


def test_the_same_blocks_give_the_same_widths() -> None:
    one, other = (Answer(MACHINES["gpu"], TEXTS["chat"], 5).run(Depth(16, Costs())).widths for _ in range(2))
    assert one == other


def test_a_batch_counts_each_of_its_rows() -> None:
    depth = Depth(8, MACHINES["gpu"].calibrated(8))
    for _ in range(40):
        width = depth.width()
        depth.observe_rows(width, [(width - 1, width - 1), (0, width - 1)], 1.5 * (width > 1), 4.0)
    assert depth.acceptance.rates()[0] == pytest.approx(0.5, abs=0.05)
    assert depth.width() == 8
    depth.observe_rows(8, [], 1.5, 4.0)


def doubtful(place: int, position: int) -> float:
    """Words that are easy to foresee, and others that are not, in no order."""
    return 0.95 if random.Random(place + position).random() < 0.65 else 0.1


@pytest.mark.parametrize("machine", [PACKED, MACHINES["steep"]], ids=["packed", "steep"])
def test_drafts_that_the_drafter_doubts_are_not_verified(machine: Machine) -> None:
    """Faster than any one width, where rows cost something and it knows which drafts are right."""
    seeds = range(6)

    def pace(policy: Callable[[], Depth | Fixed], *, tells: bool) -> float:
        return sum(Answer(machine, doubtful, seed, tells=tells).run(policy(), 600).pace for seed in seeds)

    best = min(pace(lambda width=width: Fixed(width), tells=False) for width in range(1, 9))  # type: ignore[misc]
    silent = pace(lambda: Depth(8, machine.calibrated(8)), tells=False)
    told = pace(lambda: Depth(8, machine.calibrated(8)), tells=True)
    assert told < 0.97 * best
    assert told < 0.97 * silent


@pytest.mark.parametrize("machine", [PACKED, *MACHINES.values()], ids=["packed", *MACHINES])
def test_a_drafter_that_is_sure_and_wrong_is_hardly_slower(machine: Machine) -> None:
    for seed in range(4):
        answer = Answer(machine, TEXTS["hopeless"], seed, tells=True, thinks=0.9)
        found = answer.run(Depth(8, machine.calibrated(8)), 64)
        assert found.pace <= 1.03 * Answer(machine, TEXTS["hopeless"], seed).run(Fixed(1), 64).pace


@pytest.mark.parametrize("chance", [0.6, 0.8])
@pytest.mark.parametrize("machine", [PACKED, MACHINES["steep"]], ids=["packed", "steep"])
def test_probabilities_that_tell_nothing_new_cost_nothing(machine: Machine, chance: float) -> None:
    """Where all drafts are alike the best fixed width is best, which rows must be priced by the speed for."""

    def pace(*, tells: bool) -> float:
        answers = (Answer(machine, lambda _place, _position: chance, seed, tells=tells) for seed in range(16))
        return sum(answer.run(Depth(8, machine.calibrated(8)), 400).pace for answer in answers)

    assert pace(tells=True) <= 1.03 * pace(tells=False)


@pytest.mark.parametrize("machine", [PACKED, MACHINES["steep"], MACHINES["laptop"]], ids=["packed", "steep", "laptop"])
def test_a_drafter_that_thinks_too_little_of_its_drafts_is_found_out(machine: Machine) -> None:
    """Nine of ten are right. Without a look at what it thinks drafts would be used at once."""
    for seed in SEEDS:
        answer = Answer(machine, TEXTS["maths"], seed, tells=True, thinks=0.3).run(Depth(8, machine.calibrated(8)), 600)
        assert answer.pace <= 0.8 * machine.verify_ms(1)


def test_more_rows_are_verified_the_likelier_their_drafts() -> None:
    """A row takes 0.029 plain steps here, in which 0.042 tokens come at the speed that is expected at first."""
    depth = Depth(8, Costs({width: laptop(width) for width in range(1, 9)}, 6.0))
    fitted = {chance: depth.fitted([[chance] * 7]) for chance in (0.0, 0.01, 0.2, 0.5, 0.9)}
    assert fitted == {0.0: 1, 0.01: 1, 0.2: 2, 0.5: 5, 0.9: 8}
    assert depth.fitted([[0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9]]) == 3
    assert depth.fitted([[0.0] * 7, [0.9] * 7]) == 8, "rows of a batch are verified together"
    assert Depth(8, Costs({width: laptop(width) for width in range(1, 9)}, 6.0), [4, 8]).fitted([[0.5] * 7]) in (4, 8)


def test_no_row_is_verified_that_the_account_cannot_pay() -> None:
    machine = MACHINES["steep"]
    depth = Depth(8, Costs({width: machine.verify_ms(width) for width in range(1, 9)}, machine.draft_ms))
    width = depth.fitted([[1.0] * 7])
    assert 1 < width < 8
    assert (machine.draft_ms + machine.verify_ms(width)) / machine.verify_ms(1) - 1 <= OPENING


def test_passes_that_are_to_be_timed_are_not_cut() -> None:
    depth = Depth(8, Costs())
    for width in (8, 1, 8, 1, 1):
        assert depth.width() == width
        if width > 1:
            assert depth.fitted([[0.0] * 7]) == width
        depth.observe(width, 0, width - 1, 6.0 * (width > 1), laptop(width), [0.0] * 7 if width > 1 else None)


def test_a_draft_none_of_which_is_verified_is_paid_for() -> None:
    depth = Depth(8, Costs({width: laptop(width) for width in range(1, 9)}, 6.0))
    before = depth._chat.balance
    assert depth.width() > 1 == depth.fitted([[0.0] * 7])
    depth.observe(1, 0, 0, 6.0, 30.0, [0.0] * 7)
    assert depth._chat.balance == pytest.approx(before - 6.0 / 30.0)
    assert depth.costs.draft_ms == pytest.approx(6.0)
