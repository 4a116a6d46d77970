"""From the overlay's state to text, in colours or symbols. Pure; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from dflash_cli.overlay import Mode, OverlayState
from dflash_cli.parts import GAP
from dflash_cli.terminal import printable
from dflash_cli.themes import Theme
from dflash_cli.thinking import TAGS


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
    ellipsis: str


UNICODE = Glyphs("▮", "▯", "⋅", " ▁▂▃▄▅▆▇█", "τ", " · ", "↵", "…")
ASCII = Glyphs("#", "x", ".", " .:-=+*%@", "tau", " | ", "\\n", "...")


def glyphs_for(encoding: str | None) -> Glyphs:
    """The signs that a terminal of this encoding can show."""
    return UNICODE if (encoding or "utf-8").lower().replace("-", "") in ("utf8", "utf8sig") else ASCII


@dataclass(frozen=True)
class Look:
    """How things are told apart. `marks`: symbols instead of colours. `encoding`: what the terminal can show.

    `thinking`: whether it is shown, rather than counted.
    """

    theme: Theme
    glyphs: Glyphs = UNICODE
    marks: bool = False
    encoding: str = "utf-8"
    thinking: bool = True

    def visible(self, text: str) -> str:
        """Text of a model or a file as it may reach this terminal."""
        return printable(text).encode(self.encoding, "replace").decode(self.encoding)


def style_of(name: str, look: Look) -> str:
    """The theme's style of that name; none where symbols stand for colours."""
    return "" if look.marks else str(getattr(look.theme, name))


def settled(state: OverlayState, first: int, last: int, look: Look, *, calm: bool = True) -> Text:
    """The committed pieces `first` to before `last`: no symbols, no attributes. May hold newlines.

    Without `calm` they have no colours either; thinking is faint all the same.
    """
    line = Text()
    for index in range(first, last):
        if index == state.answer_at:
            line.append_text(before_answer(state, look))
        line.append(_shown(state, index, look), _calm(state, index, look) if calm else _faint(state, index, look))
    return line


def _calm(state: OverlayState, index: int, look: Look) -> str:
    kind, theme = state.pieces[index].kind, look.theme
    style = "" if look.marks or kind == "plain" else theme.calm_accepted if kind == "accepted" else theme.calm_bonus
    return f"{_faint(state, index, look)} {style}".strip()


def _faint(state: OverlayState, index: int, look: Look) -> str:
    return style_of("faint", look) if state.pieces[index].thinking else ""


def thought(state: OverlayState, look: Look) -> str:
    """What stands for hidden thinking: how long it was, or is so far."""
    is_over = state.answer_at is not None or state.finished
    verb = "thinking:" if is_over else f"thinking{look.glyphs.ellipsis}"
    seconds = state.thinking.ms / 1e3
    return f"{verb} {state.num_thinking} token{'s' * (state.num_thinking != 1)}{look.glyphs.separator}{seconds:.1f} s"


def before_answer(state: OverlayState, look: Look) -> Text:
    """What parts the answer from the thinking before it; nothing where no thinking was there to show."""
    if not state.parts.has_thinking:
        return Text()
    return Text(GAP if look.thinking else thought(state, look) + GAP, style_of("faint", look))


def _shown(state: OverlayState, index: int, look: Look) -> str:
    """What is seen of a piece; the CR of a CR LF that two tokens share is not."""
    piece = state.pieces[index]
    text = piece.shown if look.thinking or not piece.thinking else ""
    if text.endswith("\r"):
        following = next((each.text for each in state.pieces[index + 1 :] if each.text), "")
        text = text[:-1] if following.startswith("\n") else text
    return look.visible(text)


def fresh(state: OverlayState, look: Look, taken: int = 0) -> Text:
    """The newest block as it was decided: accepted, what was rejected, the bonus; then drafts that are pending.

    Of a block of which `taken` says that its pieces are on the screen already, nothing is shown again.
    """
    theme, line, at = look.theme, Text(), state.newest.at
    if taken <= at:
        middle = at + state.newest.accepted
        is_bonus = any(piece.kind == "bonus" for piece in state.pieces[at:])
        rejected = _drafts(state, state.newest.rejected, middle, look)
        _decided(line, state, range(at, middle), ("[", "]"), theme.accepted, look)
        _mark(line, _one_line(rejected, look), "~", "~", theme.rejected, look)
        _decided(line, state, range(middle, len(state.pieces)), ("+" * is_bonus, ""), theme.bonus * is_bonus, look)
    pending = _drafts(state, "".join(state.pending), len(state.pieces), look)
    _mark(line, _one_line(pending, look), "[", "]", theme.pending, look)
    return line


def _decided(line: Text, state: OverlayState, indices: range, marks: tuple[str, str], style: str, look: Look) -> None:
    """Pieces of one kind, with what parts thinking and answer between them."""
    parts, begin = [indices], state.answer_at
    if begin is not None and begin in indices:
        parts = [range(indices.start, begin), range(begin, indices.stop)]
    for part in parts:
        if part.start == begin and part:
            line.append_text(before_answer(state, look))
        _mark(line, "".join(_shown(state, i, look) for i in part), *marks, style, look)


def _drafts(state: OverlayState, text: str, at: int, look: Look) -> str:
    """Drafts for the places from piece `at` on, as they may be shown: in the thinking without its tags, or not."""
    if not (at and state.pieces[at - 1].thinking):
        return text
    return text.replace(TAGS[0], "").replace(TAGS[1], "") if look.thinking else ""


def _mark(line: Text, text: str, before: str, after: str, style: str, look: Look) -> None:
    if text:
        line.append(f"{before}{text}{after}" if look.marks else text, "" if look.marks else style)


def _one_line(text: str, look: Look) -> str:
    """Drafts come and go: a newline in them must not move the lines below."""
    return look.visible(text.replace("\r\n", "\n")).replace("\n", look.glyphs.newline).replace("\t", " ")


def tail(state: OverlayState, mode: Mode, look: Look, taken: int = 0) -> Text:
    """What may still change or leave: in `full` the newest block (see `fresh`); how long hidden thinking is so far."""
    line = fresh(state, look, taken) if mode == "full" else Text()
    if not look.thinking and state.parts.thought and state.answer_at is None:
        line.append(thought(state, look), style_of("faint", look))
    return line


def num_settled(state: OverlayState, mode: Mode) -> int:
    """How many pieces stay as they are whatever comes."""
    return len(state.pieces) if state.finished or mode != "full" else state.newest.at
