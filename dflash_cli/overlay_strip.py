"""The strip under an answer: the last blocks, survival by position, figures. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from dflash_cli.overlay import Block, OverlayState, Totals
from dflash_cli.overlay_render import Look, style_of


def strip(state: OverlayState, width: int, rows: int, look: Look) -> list[Text]:
    """`rows` lines under the text, none longer than `width`; fewer where there is nothing to tell yet."""
    if not state.blocks or rows < 1 or width < 1:
        return []
    figures = _figures(state, look)
    if rows == 1:
        room = width - len(figures.plain) - 2
        lines = [_spaced(figures, _cells(state, room, look))]
    elif rows == 2:
        lines = [_cells(state, width, look), _spaced(figures, _sparkline(state, width - len(figures.plain) - 2, look))]
    else:
        lengths = _sparkline(state, width - len(figures.plain) - 2, look)
        lines = [_cells(state, width, look), _spaced(figures, lengths), _survival(state, look)]
    for line in lines:
        line.truncate(width)
    return lines


def _spaced(*parts: Text) -> Text:
    return Text("  ").join(part for part in parts if part.plain)


def _cells(state: OverlayState, width: int, look: Look) -> Text:
    """A cell a slot, the newest block at the right end; blocks that do not fit are left out whole."""
    used = 0
    blocks: list[Text] = []
    for block in reversed(state.blocks):
        used += len(block.cells) + (1 if blocks else 0)
        if used > width:
            break
        blocks.append(block_cells(block, look))
    return Text(" ").join(reversed(blocks))


def block_cells(block: Block, look: Look) -> Text:
    """A sign for each slot of a block."""
    glyphs = look.glyphs
    signs = {
        "accepted": (glyphs.accepted, style_of("calm_accepted", look)),
        # Struck through, an empty cell would read as a full one.
        "rejected": (glyphs.rejected, style_of("rejected", look).replace("strike", "").strip()),
        "unreached": (glyphs.unreached, style_of("faint", look)),
    }
    return Text.assemble(*(signs[cell] for cell in block.cells))


def _figures(state: OverlayState, look: Look) -> Text:
    parts = [_speed(state.turn, look), _apart(state, look)]
    if state.earlier.passes:
        parts.append("session " + _speed(state.session, look))
    return Text(look.glyphs.separator.join(part for part in parts if part), style_of("faint", look))


def _apart(state: OverlayState, look: Look) -> str:
    """Thinking and answer, once both exist."""
    thinking, answer = state.thinking.tau, state.turn.minus(state.thinking).tau
    if thinking is None or answer is None:
        return ""
    return f"thinking {look.glyphs.tau} {thinking:.2f}, answer {look.glyphs.tau} {answer:.2f}"


def _speed(totals: Totals, look: Look) -> str:
    parts = []
    if totals.tau is not None:
        parts.append(f"{look.glyphs.tau} {totals.tau:.2f}")
    if totals.tokens_per_s is not None:
        parts.append(f"{totals.tokens_per_s:.1f} tok/s")
    return " ".join(parts)


def _sparkline(state: OverlayState, width: int, look: Look) -> Text:
    """Acceptance lengths of the last blocks; the tallest sign is a block that was kept whole."""
    if width < 1:
        return Text()
    blocks = state.blocks[-width:]
    full = max(block.drafted for block in blocks) + 1
    bars = _bars((block.length / full for block in blocks), look)
    return Text(bars, style_of("calm_accepted", look))


def _survival(state: OverlayState, look: Look) -> Text:
    """A bar for each draft position, and the shares at the first, the middle and the last one."""
    shares = state.survival
    places = sorted({0, len(shares) // 2, len(shares) - 1})
    told = ", ".join(f"{place + 1}: {shares[place]:.0%}" for place in places)
    line = Text("survival by position ", style_of("faint", look))
    return line.append(_bars(shares, look), style_of("calm_accepted", look)).append(f" {told}", style_of("faint", look))


def _bars(shares: Iterable[float], look: Look) -> str:
    """A sign for each share; what is more than nothing shows."""
    levels = look.glyphs.levels
    top = len(levels) - 1
    return "".join(levels[max(1, round(share * top)) if share > 0 else 0] for share in shares)
