"""Settings of a running chat in words: their value, what is in effect where they leave it open, and their origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dflash_cli.config import SETTINGS, Setting

if TYPE_CHECKING:
    from torch import Tensor

    from dflash_cli.chat import Chat

Rows = list[tuple[str, str]]
CHECKPOINTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty")


def thinking_line(thinking: bool | None, shown: bool | None = None) -> str:
    """The state of the template's switch in words. `shown` False: the thinking is hidden."""
    state = {None: "as the template decides", True: "on", False: "off"}[thinking]
    return f"thinking {state}{', hidden' if shown is False and thinking is not False else ''}"


def setting_rows(chat: Chat) -> Rows:
    """All settings, a row each."""
    return [(name, _value_and_origin(chat, setting)) for name, setting in SETTINGS.items()]


def describe_setting(chat: Chat, setting: Setting) -> Rows:
    """One setting: its value, what it is for and what it can be."""
    rows = [(setting.name, _value_and_origin(chat, setting)), ("for", setting.help)]
    rows.append(("takes", f"{'a list, each ' if setting.many else ''}{setting.kind.expected}"))
    return [*rows, *pair_rows(chat)] if setting.name in ("model", "draft") else rows


def pair_rows(chat: Chat) -> Rows:
    """The pair that answers."""
    model = chat.conversation.model
    pair = model.pair
    rows = [("pair", pair.name), ("target", pair.target), ("drafter", pair.drafter or "none, plain decoding")]
    if pair.expected:
        bands = ", ".join(f"{kind} {low:g} to {high:g}" for kind, low, high in pair.expected)
        rows.append(("expected", f"acceptance lengths {bands} ({pair.expected_source})"))
    return [*rows, ("note", pair.note)] if pair.note else rows


def _value_and_origin(chat: Chat, setting: Setting) -> str:
    value = getattr(chat.conversation.model.config, setting.name)
    used = _used(chat).get(setting.name)
    if used is None:
        text = "not set" if value is None else _text(value)
    elif value in (None, "auto") or _text(value) == used:
        text = used
    else:
        text = f"{_text(value)}, in use is {used}"
    return f"{text} ({_origin(chat, setting, value)})"


def _origin(chat: Chat, setting: Setting, value: Any) -> str:
    if setting.name in chat.conversation.changed and value != setting.default:
        return "set in this chat"
    context = click.get_current_context(silent=True)
    if context is not None and setting.name not in chat.conversation.changed:
        from dflash_cli.options import origin

        if came_from := origin(context, setting):
            return came_from
    if value is None and setting.name in CHECKPOINTS:
        return "the checkpoint's"
    return "default" if value == setting.default else "given"


def _used(chat: Chat) -> dict[str, str]:
    """What is in effect for settings that may leave it open, or that were not taken up as they stand."""
    conversation = chat.conversation
    model = conversation.model
    params = model.params
    used = {name: _text(getattr(params, name)) for name in CHECKPOINTS}
    used |= {
        "model": model.pair.name,
        "draft": model.pair.drafter or "none",
        "context": str(conversation.max_len),
        "system": _text(model.config.system or "the template's own"),
        "max_new_tokens": _text(model.max_new_tokens or "up to the context"),
        "seed": _text("another one each time" if model.config.seed is None else model.config.seed),
        "overlay": chat.overlay.mode,
    }
    if model.codec.supports_thinking:
        used["thinking"] = "as the template decides" if model.thinking is None else _text(model.thinking)
    if not conversation.is_released:
        decoder = conversation.decoder
        used |= {
            "backend": decoder.backend.name,
            "device": str(decoder.backend.device),
            "dtype": str(decoder.backend.dtype).removeprefix("torch."),
            "quantize": decoder.backend.quantize,
            "draft_vocabulary": _drafted(decoder.backend.draft_ids),
            "block": str(decoder.width) if decoder.depth is None else f"auto, up to {decoder.width}",
        }
    return used


def _drafted(ids: Tensor | None) -> str:
    return "full" if ids is None else f"{len(ids):,} ids"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(repr, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
