"""The benchmark's own prompts, by kind of text. None is taken from a published test set. Imports no torch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

LONG_LINES = 60  # of the log that a long prompt begins with: about 1,500 tokens

MATH = (
    "A nursery has 14 trays with 26 seedlings each. It sells 180 seedlings in the morning and 75 in the afternoon. "
    "How many are left? Show your steps.",
    "A tank holds 240 litres. One pipe fills 15 litres a minute and a leak loses 3 litres a minute. How long does it "
    "take to fill the empty tank? Explain each step.",
    "Mira walks 4 km at 5 km/h and rides another 18 km at 20 km/h. What is her mean speed for the whole way? "
    "Show the calculation.",
    "A printer makes 35 pages a minute. How many minutes do 12 booklets of 70 pages take, if it pauses for 2 minutes "
    "after every third booklet? Think step by step.",
)
CODE = (
    "Write a Python function `merge_intervals(intervals)` that joins overlapping closed intervals and returns them "
    "sorted, with a docstring and three examples.",
    "Write a JavaScript function that groups an array of objects by a key and counts each group. Add comments.",
    "Write a SQL query that lists, for each customer, the month with the highest total of orders. Explain the tables "
    "you assume.",
    "Write a Python class for a queue with a largest size that drops the oldest item, with methods push, pop and "
    "__len__, and tests for it.",
)
CHAT = (
    "My neighbour's cat visits me every evening. Is it all right to feed it?",
    "What should I pack for three rainy days in a mountain hut?",
    "Explain to a ten-year-old why the moon seems to change its shape.",
    "I have rice, two eggs, a carrot and some soy sauce. What can I cook in twenty minutes?",
)
QUESTIONS = (
    "Which kinds of ship are mentioned in this log? Write a short summary of the weather, too.",
    "Write a report of one page about what happened at the lighthouse, for the harbour office.",
)
KINDS = ("math", "code", "chat", "long")
_SHORT = {"math": MATH, "code": CODE, "chat": CHAT}

_WEATHER = ("fog until noon", "a clear sky", "rain from the west", "a light breeze", "hail at dusk", "strong gusts")
_SHIPS = ("a coal barge", "two fishing boats", "the mail ferry", "a tug with a raft", "a grain ship", "a sailing yacht")
_WORK = (
    "cleaned the lens",
    "mended the stairs",
    "painted the door",
    "wound the clock",
    "carried up oil",
    "fixed the radio",
)


def prompts_of(kind: str) -> tuple[str, ...]:
    """The texts of one of KINDS."""
    if kind == "long":
        return tuple(f"{log(LONG_LINES, seed)}\n\n{question}" for seed, question in enumerate(QUESTIONS))
    return _SHORT[kind]


def log(lines: int, seed: int = 0) -> str:
    """The invented log of a lighthouse, so many lines long; always the same one for a seed."""
    return "\n".join(islice(log_lines(seed), lines))


def log_lines(seed: int = 0) -> Iterator[str]:
    """Its lines, without end: about 25 tokens each."""
    chance = random.Random(seed)  # noqa: S311
    day = 0
    while True:
        day += 1
        weather, ship, work = (chance.choice(words) for words in (_WEATHER, _SHIPS, _WORK))
        yield f"Day {day}: {weather}; {ship} passed at {chance.randrange(5, 21)} o'clock; the keeper {work}."
