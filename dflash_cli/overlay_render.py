"""From the overlay's state to lines of text: colours or symbols, and the strip. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import get_character_cell_size
from rich.text import Text

from dflash_cli.overlay import Mode, OverlayState, Totals
from dflash_cli.terminal import printable
from dflash_cli.themes import Theme

JOINER = "\u200d"
TAB = 8


@dataclass(frozen=True)
class Glyphs:
    """The signs of the strip. `levels`: from nothing to all, of a bar one character high."""

    accepted: str
    rejected: str
    unreached: str
    levels: str
    tau: str
    separator: str
    newline: str


UNICODE = Glyphs("▮", "▯", "⋅", " ▁▂▃▄▅▆▇█", "τ", " · ", "↵")
ASCII = Glyphs("#", "x", ".", " .:-=+*%@", "tau", " | ", "\\n")


@dataclass(frozen=True)
class Look:
    """How things are told apart. `marks`: symbols instead of colours. `encoding`: what the terminal can show."""

    theme: Theme
    glyphs: Glyphs = UNICODE
    marks: bool = False
    encoding: str = "utf-8"

    def visible(self, text: str) -> str:
        """Text of a model or a file as it may reach this terminal."""
        return printable(text).encode(self.encoding, "replace").decode(self.encoding)


def settled(state: OverlayState, first: int, last: int, look: Look) -> Text:
    """The committed pieces `first` to before `last`, calm: no symbols, no attributes. May hold newlines."""
    line = Text()
    styles = {"accepted": look.theme.calm_accepted, "bonus": look.theme.calm_bonus, "first": look.theme.calm_bonus}
    for index in range(first, last):
        style = "" if look.marks else styles.get(state.pieces[index].kind, "")
        line.append(look.visible(_piece(state, index)), style)
    return line


def _piece(state: OverlayState, index: int) -> str:
    """The text of a piece; the CR of a CR LF that two tokens share is not shown."""
    text = state.pieces[index].text
    if not text.endswith("\r"):
        return text
    following = next((piece.text for piece in state.pieces[index + 1 :] if piece.text), "")
    return text[:-1] if following.startswith("\n") else text


def fresh(state: OverlayState, look: Look) -> Text:
    """The newest block as it was decided: accepted, what was rejected, the bonus; then drafts that are pending."""
    at, middle = state.newest.at, state.newest.at + state.newest.accepted
    theme, line = look.theme, Text()
    pieces = [look.visible(_piece(state, i)) for i in range(at, len(state.pieces))]
    kinds = [piece.kind for piece in state.pieces[at:]]
    accepted, own = "".join(pieces[: middle - at]), "".join(pieces[middle - at :])
    is_bonus = "bonus" in kinds
    _mark(line, accepted, "[", "]", theme.accepted, look)
    _mark(line, _one_line(state.newest.rejected, look), "~", "~", theme.rejected, look)
    _mark(line, own, "+" if is_bonus else "", "", theme.bonus if is_bonus else "", look)
    _mark(line, _one_line("".join(state.pending), look), "[", "]", theme.pending, look)
    return line


def _mark(line: Text, text: str, before: str, after: str, style: str, look: Look) -> None:
    if text:
        line.append(f"{before}{text}{after}" if look.marks else text, "" if look.marks else style)


def _one_line(text: str, look: Look) -> str:
    """Drafts come and go: a newline in them must not move the lines below."""
    return look.visible(text.replace("\r\n", "\n")).replace("\n", look.glyphs.newline).replace("\t", " ")


def tail(state: OverlayState, mode: Mode, look: Look) -> Text:
    """What may still change or leave: in `full` the newest block, else nothing."""
    return fresh(state, look) if mode == "full" else Text()


def num_settled(state: OverlayState, mode: Mode) -> int:
    """How many pieces stay as they are whatever comes."""
    return len(state.pieces) if state.finished or mode != "full" else state.newest.at


def wrap(line: Text, width: int) -> list[Text]:
    """A line without newlines cut into rows as a terminal cuts it: at the last column, wherever that is in a word."""
    if "\t" in line.plain:
        line = line.copy()
        line.expand_tabs(TAB)
    cuts = _cuts(line.plain, width)
    return list(line.divide(cuts)) if cuts else [line]


def _cuts(text: str, width: int) -> list[int]:
    if text.isascii():
        return list(range(width, len(text), width))
    cuts, column, previous = [], 0, ""
    for i, char in enumerate(text):
        cells = get_character_cell_size(char)
        belongs = previous == JOINER or "\U0001f3fb" <= char <= "\U0001f3ff"
        if column and cells and column + cells > width and not belongs:
            cuts.append(i)
            column = 0
        column, previous = column + cells, char
    return cuts


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


def _style(name: str, look: Look) -> str:
    return "" if look.marks else str(getattr(look.theme, name))


def _cells(state: OverlayState, width: int, look: Look) -> Text:
    """A cell a slot, the newest block at the right end; blocks that do not fit are left out whole."""
    glyphs, used = look.glyphs, 0
    blocks: list[Text] = []
    signs = {
        "accepted": (glyphs.accepted, _style("calm_accepted", look)),
        # Struck through, an empty cell would read as a full one.
        "rejected": (glyphs.rejected, _style("rejected", look).replace("strike", "").strip()),
        "unreached": (glyphs.unreached, _style("faint", look)),
    }
    for block in reversed(state.blocks):
        used += len(block.cells) + (1 if blocks else 0)
        if used > width:
            break
        blocks.append(Text.assemble(*(signs[cell] for cell in block.cells)))
    return Text(" ").join(reversed(blocks))


def _figures(state: OverlayState, look: Look) -> Text:
    parts = [_speed(state.turn, look)]
    if state.earlier.passes:
        parts.append("session " + _speed(state.session, look))
    return Text(look.glyphs.separator.join(part for part in parts if part), _style("faint", look))


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
    return Text(bars, _style("calm_accepted", look))


def _survival(state: OverlayState, look: Look) -> Text:
    """A bar for each draft position, and the shares at the first, the middle and the last one."""
    shares = state.survival
    places = sorted({0, len(shares) // 2, len(shares) - 1})
    told = ", ".join(f"{place + 1}: {shares[place]:.0%}" for place in places)
    line = Text("survival by position ", _style("faint", look))
    return line.append(_bars(shares, look), _style("calm_accepted", look)).append(f" {told}", _style("faint", look))


def _bars(shares: Iterable[float], look: Look) -> str:
    """A sign for each share; what is more than nothing shows."""
    levels = look.glyphs.levels
    top = len(levels) - 1
    return "".join(levels[max(1, round(share * top)) if share > 0 else 0] for share in shares)
