"""Slash commands that change how answers are made: model, drafter, backend, block, thinking and any other setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from backends import BACKENDS
from dflash_cli.config import SETTINGS, Setting
from dflash_cli.errors import UsageError, nearest
from dflash_cli.models import NO_DRAFTER, PAIRS
from dflash_cli.setting_kinds import File, Switch
from dflash_cli.slash import PATHS, Command, check_choice, one_of
from dflash_cli.slash_show import describe_setting, pair_rows, setting_rows, thinking_line
from dflash_cli.switching import can_change, change

if TYPE_CHECKING:
    from dflash_cli.chat import Chat

ON_OFF = ("on", "off")
THINK = (*ON_OFF, "hide")
DEFAULT = "default"
"""The word that takes a setting back to its default."""


def _model(chat: Chat, name: str) -> None:
    if not name:
        chat.say_table([*pair_rows(chat), ("known", ", ".join(PAIRS))])
    else:
        _set(chat, SETTINGS["model"], name)


def _draft(chat: Chat, name: str) -> None:
    if not name:
        chat.say_table(pair_rows(chat))
    else:
        _set(chat, SETTINGS["draft"], name)


def _backend(chat: Chat, name: str) -> None:
    _set_or_show(chat, SETTINGS["backend"], name)


def _block(chat: Chat, word: str) -> None:
    _set_or_show(chat, SETTINGS["block"], word)


def _spec(chat: Chat, word: str) -> None:
    check_choice("/spec", word, ON_OFF)
    if word:
        chat.conversation.speculate(word == "on")
        _note(chat)
    decoder = chat.conversation.decoder
    chat.say(f"speculation {'on' if decoder.width > 1 else 'off'}, {decoder.block_in_words}")


def _system(chat: Chat, text: str) -> None:
    if apply(chat, {"system": text or None}):
        chat.say("the system prompt is set" if text else "no system prompt but the template's own")


def _think(chat: Chat, word: str) -> None:
    model = chat.conversation.model
    codec, is_hidden = model.codec, model.config.show_thinking is False
    possible = THINK if codec.supports_thinking else ("on", "hide") if is_hidden else ("hide",)
    if not codec.supports_thinking and (codec.thinking_ids is None or (word in THINK and word not in possible)):
        raise UsageError(f"{model.pair.name} cannot switch thinking: its chat template has no such switch")
    check_choice("/think", word, THINK)
    changes: dict[str, Any] = {"thinking": word != "off"} if word and codec.supports_thinking else {}
    if word == "hide":
        changes["show_thinking"] = False
    elif word == "on" and is_hidden:
        changes["show_thinking"] = None
    if not changes or apply(chat, changes):
        chat.say(thinking_line(chat.conversation.model.thinking, chat.conversation.model.config.show_thinking))


def _set_command(chat: Chat, text: str) -> None:
    if not text:
        chat.say_table(setting_rows(chat))
        return
    key, *value = re.split(r"\s*=\s*|\s+", text, maxsplit=1)
    _set_or_show(chat, find_setting(key), value[0] if value else "")


def _show(chat: Chat, key: str) -> None:
    if not key:
        chat.say_table(setting_rows(chat))
        return
    setting = find_setting(key)
    chat.say_table(describe_setting(chat, setting))


def find_setting(key: str) -> Setting:
    """The setting of that name, or of that flag. Raises UsageError with the nearest."""
    name = _keys().get(key.lower().replace("-", "_").strip("_"))
    if name is None:
        hint = nearest(key, list(SETTINGS)) or "; /show lists them"
        raise UsageError(f"unknown setting {key!r}{hint}")
    return SETTINGS[name]


def _keys() -> dict[str, str]:
    """Names and long flags, all with underscores, to names."""
    flags = {
        flag.split("/")[0].strip("-").replace("-", "_"): each.name
        for each in SETTINGS.values()
        for flag in each.flags
        if flag.startswith("--")
    }
    return flags | {name: name for name in SETTINGS}


def _set_or_show(chat: Chat, setting: Setting, text: str) -> None:
    if text:
        _set(chat, setting, text)
    else:
        chat.say_table(describe_setting(chat, setting)[:1])


def _set(chat: Chat, setting: Setting, text: str) -> None:
    if not can_change(setting.name):
        flag = setting.flags[0].split("/")[0]
        raise UsageError(f"{setting.name} cannot change in a running chat; leave, and start one with {flag}")
    if apply(chat, _changes(chat, setting, _parse(setting, text))) and setting.name not in ("model", "draft"):
        chat.say_table(describe_setting(chat, setting)[:1])


def _parse(setting: Setting, text: str) -> Any:
    if text == DEFAULT:
        return setting.default
    try:
        return setting.parse(text)
    except ValueError as err:
        raise UsageError(f"{setting.name}: {err}{nearest(text, list(setting.kind.choices))}") from None


def _changes(chat: Chat, setting: Setting, value: Any) -> dict[str, Any]:
    """A new model has a drafter of its own, and a new drafter a block size."""
    changes = {setting.name: value}
    if setting.name == "model":
        changes["draft"] = None
    if setting.name in ("model", "draft") and chat.conversation.model.config.block is not None:
        changes["block"] = None
        chat.say("the block size is auto again")
    return changes


def apply(chat: Chat, changes: dict[str, Any]) -> bool:
    """Change settings of the running chat, and tell what it led to. False where Ctrl-C came: then nothing changed."""
    conversation = chat.conversation
    # Not the decoder itself: whoever holds it keeps its memory from the new one.
    has_read = not conversation.is_released and conversation.decoder.resident[0].length > 0
    try:
        change(conversation, changes, chat.say)
    except KeyboardInterrupt:
        if not chat.source.has_person:
            raise
        chat.say("interrupted: all is as it was")
        return False
    for name, act in _SHOWN.items():
        if name in changes:
            act(chat, changes[name])
    if not conversation.is_released:
        _tell_switched(chat, "model" in changes or "draft" in changes, has_read=has_read)
    for remark in set(conversation.model.idle_settings()) if changes.keys() & _CAN_IDLE else ():
        chat.say(remark)
    _note(chat)
    return True


def _tell_switched(chat: Chat, has_new_pair: bool, *, has_read: bool) -> None:
    """What answers now, and what that means for the turns there are. `has_read`: until now they were in the cache."""
    from dflash_cli.chat import ready_line

    conversation = chat.conversation
    if has_new_pair:
        chat.say(ready_line(conversation))
    if not conversation.turns:
        return
    length = len(conversation.encode_first(len(conversation.turns)))
    if length >= conversation.max_len:
        chat.say(
            f"the conversation has {length} tokens and the context holds {conversation.max_len}: nothing is dropped, "
            "but no answer fits until /undo or /clear makes room"
        )
    elif has_read and not conversation.decoder.resident[0].length:
        chat.say(f"the conversation ({length} tokens) is read anew with your next message")


def _note(chat: Chat) -> None:
    if chat.log is not None and not chat.conversation.is_released:
        chat.log.note(chat.conversation.model, chat.conversation.decoder)


def _switch_overlay(chat: Chat, mode: str | None) -> None:
    if mode is not None:
        chat.overlay.switch(mode)


_CAN_IDLE = {"thinking", "raw", "chat_template", "model"}
_SHOWN: dict[str, Callable[[Chat, Any], None]] = {
    "overlay": _switch_overlay,
    "theme": lambda chat, theme: chat.overlay.dress(theme),
    "quiet": lambda chat, is_quiet: setattr(chat.screen, "is_quiet", is_quiet),
}


def value_words(setting: Setting) -> Iterable[str]:
    """What a setting can be, for completion."""
    if setting.name in ("model", "draft"):
        return (*PAIRS, *((NO_DRAFTER,) if setting.name == "draft" else ()), PATHS)
    if isinstance(setting.kind, File):
        return (DEFAULT, PATHS)
    return (*(ON_OFF if isinstance(setting.kind, Switch) else setting.kind.choices), DEFAULT)


def _set_words(_chat: Chat, before: Sequence[str]) -> Iterable[str]:
    if not before:
        return [name for name in SETTINGS if can_change(name)]
    name = _keys().get(before[0].lower().replace("-", "_"))
    return value_words(SETTINGS[name]) if name and len(before) == 1 else ()


def _words_of(name: str) -> Callable[[Chat, Sequence[str]], Iterable[str]]:
    return lambda _chat, before: () if before else value_words(SETTINGS[name])


COMMANDS = (
    Command("/model", "[NAME]", "Talk with another model; the conversation stays.", _model, words=_words_of("model")),
    Command("/draft", "[NAME|none]", "Use another drafter, or none.", _draft, words=_words_of("draft")),
    Command("/backend", "[NAME]", "Compute in another way.", _backend, words=one_of("auto", *BACKENDS)),
    Command("/block", "[N|auto]", "Tokens of a block; auto: what pays here and now.", _block, words=one_of("auto")),
    Command("/spec", "[on|off]", "Decode with the drafter, or plainly.", _spec, words=one_of(*ON_OFF)),
    Command(
        "/think", "[on|off|hide]", "Let the model think before it answers, or hide that.", _think, words=one_of(*THINK)
    ),
    Command("/system", "[TEXT]", "Set the system prompt; without TEXT, the template's own.", _system),
    Command(
        "/set", "[KEY VALUE]", "Change any setting; VALUE `default` takes it back.", _set_command, words=_set_words
    ),
    Command("/show", "[KEY]", "Settings, and where they come from.", _show, words=one_of(*SETTINGS)),
)
