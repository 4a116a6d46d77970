"""The settings: each one's name, default, help and range are written here, once. Imports no click and no torch.

Flags, environment variables and the file's keys are generated from the fields of `Config` (see `options.py`).
"""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO, TypeVar

from backends import BACKENDS, QUANTISATIONS
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.setting_kinds import Choice, Device, File, Kind, Number, Switch, Text, Whole, WholeOrAuto, split_list
from dflash_cli.themes import DEFAULT_THEME, THEMES

Default = TypeVar("Default")
DRAFT_VOCABULARIES = ("auto", "full")
GROUPS = ("model", "text", "sampling", "output", "chat")


@dataclass(frozen=True)
class Setting:
    """What is known of one field of `Config`. `many`: the field holds a tuple of values of `kind`."""

    name: str
    default: Any
    kind: Kind
    help: str
    group: str
    flags: tuple[str, ...]
    many: bool

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"DFLASH_{self.name.upper()}"

    def check(self, value: object) -> Any:
        """A value from the configuration file as the field holds it. Raises ValueError: found and expected."""
        if not self.many:
            return self.kind.check(value)
        if not isinstance(value, list):
            raise ValueError(f"found {value!r}; expected an array, each {self.kind.expected}")
        return tuple(self.kind.check(item) for item in value)

    def parse(self, text: str) -> Any:
        """A value from its environment variable. Raises ValueError."""
        return tuple(self.kind.parse(text) for text in split_list(text)) if self.many else self.kind.parse(text)


def setting(default: Default, kind: Kind, help: str, group: str, *flags: str, many: bool = False) -> Default:  # noqa: A002
    """A field of `Config`; `flags` are what the command line calls it (`--on/--off` for a switch)."""
    value: Default = field(
        default=default, metadata={"kind": kind, "help": help, "group": group, "flags": flags, "many": many}
    )
    return value


@dataclass(frozen=True)
class Config:
    """Every setting. None means that the model, its checkpoint or the pair decides."""

    model: str | None = setting(
        None,
        Text("MODEL"),
        "Model: an alias (see `dflash models`), a hub id, a folder or a .gguf file (default: picked by device).",
        "model",
        "--model",
        "-m",
    )
    draft: str | None = setting(
        None,
        Text("DRAFTER"),
        'Drafter: a hub id, a folder or an alias; "none" decodes plainly (default: the pair\'s own).',
        "model",
        "--draft",
        "-d",
    )
    draft_vocabulary: str = setting(
        "auto",
        Choice(*DRAFT_VOCABULARIES),
        "Ids drafted: those the drafter has an index of, if it has one, or all (the text is the same).",
        "model",
        "--draft-vocabulary",
    )
    backend: str = setting("auto", Choice("auto", *BACKENDS), "How the model is computed.", "model", "--backend")
    device: str = setting("auto", Device(), "Where: auto, cpu, cuda, cuda:N or mps.", "model", "--device")
    dtype: str = setting(
        "auto", Choice("auto", "float32", "bfloat16", "float16"), "Precision of the weights.", "model", "--dtype"
    )
    quantize: str = setting(
        "none",
        Choice(*QUANTISATIONS),
        "Keep the target's weights in fewer bits (its text changes; the drafter stays as it is).",
        "model",
        "--quantize",
    )
    context: int | None = setting(
        None, Whole(1), "Tokens the model can look back on (default: the model's own, capped).", "model", "--context"
    )
    block: int | None = setting(
        None,
        WholeOrAuto(1),
        "Tokens of a block; 1 decodes plainly (default: auto, what pays here and now).",
        "model",
        "--block",
    )
    offline: bool = setting(
        False, Switch(), "Use what is cached and never the network.", "model", "--offline/--no-offline"
    )
    system: str | None = setting(
        None, Text(empty=True), "System prompt (default: the template's own).", "text", "--system", "-s"
    )
    thinking: bool | None = setting(
        None, Switch(), "Let the model think before it answers (default: the pair's own).", "text", "--think/--no-think"
    )
    chat_template: str | None = setting(
        None, File(), "Chat template, a Jinja file (default: the model's own).", "text", "--chat-template"
    )
    raw: bool = setting(
        False, Switch(), "Continue the text as it is, without a chat template.", "text", "--raw/--no-raw"
    )
    max_new_tokens: int | None = setting(
        None,
        Whole(1),
        "Most tokens of an answer (default: the pair's, else up to the context).",
        "sampling",
        "--max-new-tokens",
        "-n",
    )
    temperature: float | None = setting(
        None,
        Number(0),
        "Sampling temperature, 0 is greedy (default: the checkpoint's).",
        "sampling",
        "--temperature",
        "-t",
    )
    top_k: int | None = setting(
        None, Whole(0), "Keep the k likeliest tokens, 0 keeps all (default: the checkpoint's).", "sampling", "--top-k"
    )
    top_p: float | None = setting(
        None,
        Number(0, 1, above=True),
        "Keep the likeliest tokens up to this probability (default: the checkpoint's).",
        "sampling",
        "--top-p",
    )
    min_p: float | None = setting(
        None,
        Number(0, 1),
        "Drop tokens below this share of the likeliest one's probability (default: the checkpoint's).",
        "sampling",
        "--min-p",
    )
    repetition_penalty: float | None = setting(
        None,
        Number(0, above=True),
        "Weaken tokens of the prompt and answer, 1 is off (default: the checkpoint's).",
        "sampling",
        "--repetition-penalty",
    )
    presence_penalty: float | None = setting(
        None,
        Number(),
        "Subtracted from logits of tokens in the answer, 0 is off (default: the checkpoint's).",
        "sampling",
        "--presence-penalty",
    )
    seed: int | None = setting(
        None, Whole(), "Same seed, same text (default: another one each time).", "sampling", "--seed"
    )
    stop: tuple[str, ...] = setting(
        (), Text(), "Text that ends the answer and is left out of it; may be repeated.", "sampling", "--stop", many=True
    )
    quiet: bool = setting(False, Switch(), "Print the answer and errors only.", "output", "--quiet/--no-quiet", "-q")
    verbose: bool = setting(
        False, Switch(), "Say more, and where settings come from.", "output", "--verbose/--no-verbose", "-v"
    )
    color: str = setting("auto", Choice("auto", "always", "never"), "Colours in the output.", "output", "--color")
    trace: str | None = setting(
        None, File(), "Append the events of each answer to this file, for /replay (default: none).", "output", "--trace"
    )
    stats: bool = setting(
        True, Switch(), "Keep the figures of each answer, no text, for `dflash stats`.", "output", "--stats/--no-stats"
    )
    overlay: str | None = setting(
        None,
        Choice("off", "tokens", "full"),
        "Show what was drafted, kept and corrected (default: full in a colour terminal).",
        "chat",
        "--overlay",
    )
    theme: str = setting(DEFAULT_THEME, Choice(*THEMES), "Colours of the overlay.", "chat", "--theme")
    markdown: bool = setting(
        True, Switch(), "Render Markdown when the overlay is off.", "chat", "--markdown/--no-markdown"
    )
    slow: float | None = setting(
        None,
        Number(0, above=True),
        "Show at most this many steps a second, to look at them (default: full speed).",
        "chat",
        "--slow",
    )
    history: bool = setting(
        True, Switch(), "Remember what is typed, for later chats too.", "chat", "--history/--no-history"
    )
    show_thinking: bool | None = setting(
        None,
        Switch(),
        "Show what the model thinks (default: on a terminal).",
        "chat",
        "--show-thinking/--hide-thinking",
    )
    save: bool = setting(True, Switch(), "Save chats.", "chat", "--save/--no-save")
    save_events: bool = setting(
        False,
        Switch(),
        "Save with each answer how it came about: blocks, drafts and times.",
        "chat",
        "--save-events/--no-save-events",
    )

    def __post_init__(self) -> None:
        if self.quiet and self.verbose:
            raise UsageError("quiet and verbose are both on; turn one off with --no-quiet or --no-verbose")

    def wants_color(self, stream: TextIO | None) -> bool:
        """Whether to colour what goes to `stream` (NO_COLOR, FORCE_COLOR and TERM=dumb are honoured)."""
        if self.color != "auto" or stream is None:
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")

    def read_chat_template(self) -> str | None:
        """The text of `chat_template`, or None. Raises DFlashError where it cannot be read."""
        if self.chat_template is None:
            return None
        try:
            return Path(self.chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text"
            raise DFlashError(f"the chat template {self.chat_template} cannot be read: {reason}") from err


def settings_of(values: type[Any]) -> dict[str, Setting]:
    """What is known of each field of a dataclass whose fields are made by `setting`."""
    found = {}
    for each in fields(values):
        assert each.default is not MISSING
        found[each.name] = Setting(name=each.name, default=each.default, **each.metadata)
    return found


SETTINGS: dict[str, Setting] = settings_of(Config)
