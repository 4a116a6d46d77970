"""How often drafts are kept that the drafter is so sure of: `python -m tests.measure_chances`. A command, not a test.

The embedded pair answers the prompts of `dflash bench`, in full blocks. A draft counts where all before it was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from dflash_cli import load
from dflash_cli.bench.kinds import prompts_of
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder

KINDS = ("math", "code", "chat")
TOKENS = 64
CLASSES = 10


class Recorder:
    """In the place of a `Depth`: takes full blocks and counts, by class of probability."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.tested, self.kept = [0] * CLASSES, [0] * CLASSES

    def width(self) -> int:
        return self.block_size

    def fitted(self, _chances: Sequence[Sequence[float]]) -> int:
        return self.block_size

    def new_turn(self) -> None:
        pass

    def observe_rows(
        self,
        _width: int,
        rows: Sequence[tuple[int, int]],
        _draft_ms: float,
        _verify_ms: float,
        chances: Sequence[Sequence[float]],
    ) -> None:
        for (accepted, num_drafted), row in zip(rows, chances, strict=True):
            for position, chance in enumerate(row[: min(accepted + 1, num_drafted)]):
                place = min(int(chance * CLASSES), CLASSES - 1)
                self.tested[place] += 1
                self.kept[place] += position < accepted


def main() -> None:
    """Print the table."""
    model = load("smollm2-135m", device="cpu")
    backend = model.decoder().backend
    recorder = Recorder(backend.block_size)
    decoder = Decoder(backend, depth=lambda _start: recorder)  # type: ignore[arg-type, return-value]
    for prompt in (prompt for kind in KINDS for prompt in prompts_of(kind)):
        ids = model.encode(model.conversation(prompt))
        for _ in decoder.generate(Request(ids, max_new_tokens=TOKENS, stop_ids=model.codec.stop_ids)):
            pass
    click.echo("probability   drafts   kept")
    for place, (tested, kept) in enumerate(zip(recorder.tested, recorder.kept, strict=True)):
        if tested:
            click.echo(f"{place / CLASSES:.1f} to {(place + 1) / CLASSES:.1f}    {tested:6}   {kept / tested:.2f}")


if __name__ == "__main__":
    main()
