"""The strip under an answer: the last blocks, survival by position, figures. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from dflash_cli.overlay import Block, Cell, OverlayState, Totals
from dflash_cli.overlay_render import Look, style_of

GAP = "  "
LABEL_WIDTH = 19
WIDTH_FOR_LABELS = 56
ROOM = 12  # columns that figures beside cells or lengths leave for them


def strip(state: OverlayState, width: int, rows: int, look: Look) -> list[Text]:
    """`rows` lines under the text, none longer than `width`; fewer where there is nothing to tell yet."""
    if not state.blocks or rows < 1 or width < 1:
        return []
    if rows == 1:
        figures = _figures(state, width - ROOM, look)
        lines = [_spaced(figures, _cells(state, width - figures.cell_len - len(GAP), look))]
    else:
        labels = _labels(look, is_short=width < WIDTH_FOR_LABELS)
        room = width - labels[0].cell_len
        figures = _figures(state, room - ROOM, look)
        lengths = _sparkline(state, room - figures.cell_len - len(GAP), look)
        parts = [
            _cells(state, room, look),
            _spaced(figures, lengths),
            _survival(state, width - labels[2].cell_len, look),
        ]
        lines = [Text.assemble(label, part) for label, part in zip(labels[:rows], parts, strict=False)]
    for line in lines:
        line.truncate(width)
    return lines


def _labels(look: Look, *, is_short: bool) -> list[Text]:
    """What the lines mean, all of one width; the first one is the legend of the cells. `is_short`: hardly any."""
    faint = style_of("faint", look)
    if is_short:
        return [Text(), Text(), Text("kept ", faint)]
    (accepted, kept), (rejected, thrown), _ = _signs(look).values()
    labels = [
        Text.assemble((accepted, kept), (" kept ", faint), (rejected, thrown), (" rejected", faint)),
        Text("tokens per pass", faint),
        Text("kept by position", faint),
    ]
    for label in labels:
        label.pad_right(LABEL_WIDTH - label.cell_len)
    return labels


def _spaced(*parts: Text) -> Text:
    return Text(GAP).join(part for part in parts if part.plain)


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
    signs = _signs(look)
    return Text.assemble(*(signs[cell] for cell in block.cells))


def _signs(look: Look) -> dict[Cell, tuple[str, str]]:
    """Of a slot: its sign and style."""
    glyphs = look.glyphs
    return {
        "accepted": (glyphs.accepted, style_of("calm_accepted", look)),
        # Struck through, an empty cell would read as a full one.
        "rejected": (glyphs.rejected, style_of("rejected", look).replace("strike", "").strip()),
        "unreached": (glyphs.unreached, style_of("faint", look)),
    }


def _figures(state: OverlayState, width: int, look: Look) -> Text:
    """The turn's, then what else there is room for."""
    parts = [_speed(state.turn, look), _apart(state, look)]
    if state.earlier.passes:
        parts.append(f"session {_speed(state.session, look)}")
    return Text(_fitting(parts, look.glyphs.separator, width), style_of("faint", look))


def _fitting(parts: Iterable[str], separator: str, width: int) -> str:
    """The first part, and as many of the others as there is room for."""
    text = ""
    for part in parts:
        longer = separator.join(each for each in (text, part) if each)
        text = longer if len(longer) <= width or not text else text
    return text


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
    return ", ".join(parts)


def _sparkline(state: OverlayState, width: int, look: Look) -> Text:
    """Acceptance lengths of the last blocks; the tallest sign is a block that was kept whole."""
    if width < 1:
        return Text()
    blocks = state.blocks[-width:]
    full = max(block.drafted for block in blocks) + 1
    bars = _bars((block.length / full for block in blocks), look)
    return Text(bars, style_of("calm_accepted", look))


def _survival(state: OverlayState, width: int, look: Look) -> Text:
    """A bar for each draft position, and the shares at the first, the middle and the last one."""
    shares = state.survival
    places = sorted({0, len(shares) // 2, len(shares) - 1})
    each = [f"{_ordinal(place + 1)} {shares[place]:.0%}" for place in places]
    told = _fitting(each, ", ", width - len(shares) - len(GAP))
    bars = Text(_bars(shares, look), style_of("calm_accepted", look))
    return _spaced(bars, Text(told, style_of("faint", look)))


def _ordinal(number: int) -> str:
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _bars(shares: Iterable[float], look: Look) -> str:
    """A sign for each share; what is more than nothing shows."""
    levels = look.glyphs.levels
    top = len(levels) - 1
    return "".join(levels[max(1, round(share * top))] if share > 0 else look.glyphs.unreached for share in shares)
