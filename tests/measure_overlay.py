"""Measure what drawing costs: `python -m tests.measure_overlay [--tokens N] [--rounds N]`. A command, not a test.

The embedded pair answers the same prompts, in turn without drawing, with the overlay off and with it full, on a
pseudo-terminal that another process reads. Printed are medians of the decoding speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from dflash_cli import load
from dflash_cli.answering import Watch, answer
from dflash_cli.bench.kinds import prompts_of
from dflash_cli.model import Model
from dflash_cli.overlay_live import Overlay
from dflash_cli.speculative import Decoder

SIZE = (100, 30)
MODES = ("undrawn", "off", "full")
KINDS = ("math", "code", "chat")


@contextmanager
def pseudo_terminal() -> Iterator[TextIO]:
    """The program's side of a terminal whose other side a process reads and drops."""
    import termios

    main, side = os.openpty()
    with os.fdopen(side, "w", encoding="utf-8") as stream:
        termios.tcsetwinsize(side, (SIZE[1], SIZE[0]))
        reader = subprocess.Popen(["cat"], stdin=main, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(main)
        try:
            yield stream
        finally:
            reader.terminate()
            reader.wait()


def speed(model: Model, decoder: Decoder, ids: list[int], mode: str, stream: TextIO) -> float:
    """Tokens a second after the first."""
    decoder.resident[0].length = 0  # every round pays its prefill
    overlay = Overlay(stream, None if mode == "undrawn" else mode, model.config.theme, has_color=True)

    def run(watch: Watch) -> float:
        return answer(model, decoder, ids, watch).stats.tokens_per_s or 0.0

    if mode == "undrawn":
        return run(lambda _event, _said: None)
    with overlay.answer(model.codec, model.config.stop) as live:
        return run(lambda event, said: live.add(event, said.flags))


def side_by_side(model: Model, stream: TextIO, rounds: int, tell: Callable[[str], None]) -> None:
    """The table."""
    decoder, ratios = model.decoder(), []
    tell(f"{'prompt':8}" + "".join(f"{mode:>16}" for mode in MODES) + f"{'full/off':>10}")
    for kind in KINDS:
        ids = model.encode(model.conversation(prompts_of(kind)[0]))
        speeds: dict[str, list[float]] = {mode: [] for mode in MODES}
        for round_ in range(rounds + 1):
            # Each round begins with another mode, so that none profits from its place.
            for mode in (*MODES[round_ % 3 :], *MODES[: round_ % 3]):
                found = speed(model, decoder, ids, mode, stream)
                if round_:  # the first one warms up
                    speeds[mode].append(found)
        median = {mode: statistics.median(each) for mode, each in speeds.items()}
        ratios.append(median["full"] / median["off"])
        tell(f"{kind:8}" + "".join(f"{median[mode]:>10.1f} tok/s" for mode in MODES) + f"{ratios[-1]:>10.3f}")
    tell(f"full/off, geometric mean: {statistics.geometric_mean(ratios):.3f}")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["TERM"] = "xterm-256color"
    os.environ["COLORTERM"] = "truecolor"
    model = load("smollm2-135m", dtype="bfloat16", max_new_tokens=arguments.tokens, context=1024)
    with pseudo_terminal() as stream:
        side_by_side(model, stream, arguments.rounds, print)


if __name__ == "__main__":
    main()
