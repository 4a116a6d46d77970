"""The line below the prompt: what answers, how, and how full the context is. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from dflash_cli.overlay_render import UNICODE, Glyphs
from dflash_cli.terminal import printable

if TYPE_CHECKING:
    from dflash_cli.chat import Chat
    from dflash_cli.model import Model

Fragments = list[tuple[str, str]]
NEARLY, FULL = 0.8, 0.95
STYLES = {
    "toolbar": "#888888",
    "toolbar.nearly": "bold ansiyellow",
    "toolbar.full": "bold reverse ansired",
}
METER_CELLS = 5
NAME_CELLS = 24  # of a model's or session's name
# In this order parts are given up where the line is too narrow; the share of the context that is used stays.
LEAST = ("session", "backend", "thinking", "speed", "tau", "meter", "overlay", "counts", "model")


@dataclass(frozen=True)
class Status:
    """What the toolbar tells. `used` and `limit` count tokens; "" and None: there is nothing to tell."""

    model: str
    backend: str
    overlay: str
    used: int
    limit: int
    thinking: str = ""
    tau: float | None = None
    tokens_per_s: float | None = None
    session: str = ""

    @property
    def share(self) -> float:
        """Of the context, how much is used."""
        return self.used / self.limit if self.limit else 0.0


def status_of(chat: Chat) -> Status:
    """The status now. The context holds what the last turn of the conversation read and wrote."""
    conversation, last, log = chat.conversation, chat.last_turn, chat.log
    model, is_released = conversation.model, conversation.is_released
    stats = conversation.turns[-1].stats if conversation.turns else None
    return Status(
        model="no model" if is_released else _name(model.pair.name),
        backend="" if is_released else _name(conversation.decoder.backend.name),
        overlay=chat.overlay.mode,
        used=stats.prompt_tokens + len(stats.ids) if stats else 0,
        limit=conversation.max_len,
        thinking=_thinking(model),
        tau=last.stats.tau if last and last.stats.drafted else None,
        tokens_per_s=last.stats.tokens_per_s if last else None,
        session=_name(log.name) if log is not None and log.is_saved else "",
    )


def _thinking(model: Model) -> str:
    if not model.codec.supports_thinking:
        return ""
    if model.thinking is not False and model.config.show_thinking is False:
        return "hidden"
    return {None: "auto", True: "on", False: "off"}[model.thinking]


def render(status: Status, width: int, *, has_color: bool = True, glyphs: Glyphs = UNICODE) -> Fragments:
    """One line of at most `width` columns, as (style, text). Without colours no styles: signs tell a full context."""
    kept = {"context", *LEAST}
    for least in LEAST:
        line = _line(status, kept, has_color, glyphs)
        if _cells(line) <= width:
            return line
        kept.discard(least)
    style, text = _line(status, kept, has_color, glyphs)[0]
    return [(style, _cut(text, width, glyphs))]


def _line(status: Status, kept: set[str], has_color: bool, glyphs: Glyphs) -> Fragments:
    tau = "" if status.tau is None else f"{glyphs.tau} {status.tau:.1f}"
    speed = "" if status.tokens_per_s is None else f"{status.tokens_per_s:.0f} tok/s"
    parts = {
        "model": _cut(status.model, NAME_CELLS, glyphs),
        "backend": status.backend,
        "thinking": f"thinking {status.thinking}" if status.thinking else "",
        "overlay": f"overlay {status.overlay}",
        "context": _context(status, kept, has_color, glyphs),
        "tau": tau,
        "speed": speed,
        "session": _cut(status.session, NAME_CELLS, glyphs),
    }
    calm = "class:toolbar" if has_color else ""
    level = ".full" if status.share >= FULL else ".nearly" if status.share >= NEARLY else ""
    line: Fragments = []
    for name, text in parts.items():
        if text and name in kept:
            line += [(calm, glyphs.separator)] if line else []
            line.append((calm + level if has_color and name == "context" else calm, text))
    return line


def _context(status: Status, kept: set[str], has_color: bool, glyphs: Glyphs) -> str:
    filled = min(METER_CELLS, int(status.share * METER_CELLS + 0.5))
    meter = glyphs.accepted * filled + glyphs.unreached * (METER_CELLS - filled)
    counts = f"{status.used}/{status.limit}" if "counts" in kept else f"{status.share:.0%}"
    signs = "" if has_color else "!" * ((status.share >= NEARLY) + (status.share >= FULL))
    return " ".join(part for part in ("ctx", meter if "meter" in kept else "", counts + signs) if part)


def _name(text: str | None) -> str:
    return " ".join(printable(text or "").split())


def _cut(text: str, width: int, glyphs: Glyphs) -> str:
    if cell_len(text) <= width:
        return text
    end = glyphs.ellipsis if width > cell_len(glyphs.ellipsis) else ""
    return set_cell_size(text, width - cell_len(end)).rstrip() + end


def _cells(line: Fragments) -> int:
    return sum(cell_len(text) for _, text in line)
