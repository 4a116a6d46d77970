"""Other settings in mid-chat, another model, drafter, backend or device among them. The conversation stays.

What is wanted is loaded first and only then is the old let go; where the memory does not hold both, the old one goes
first and comes back if the new one cannot be loaded. Imports no torch by itself.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dflash_cli.config import Config
from dflash_cli.errors import DFlashError
from dflash_cli.interrupts import Interrupts, uninterrupted
from dflash_cli.memory_fit import NotEnoughMemory
from dflash_cli.startup import load_model

if TYPE_CHECKING:
    from dflash_cli.conversation import Conversation
    from dflash_cli.model import Model

LOADED = ("model", "draft", "draft_vocabulary", "backend", "device", "dtype", "quantize", "context", "chat_template")
"""Settings whose change may need something to be loaded."""
Tell = Callable[[str], None]


def can_change(name: str) -> bool:
    """Whether a setting can change in a running chat."""
    from dflash_cli.model import CHANGEABLE

    return (name in LOADED or name in CHANGEABLE) and name != "verbose"  # which only the start of a command reads


def change(conversation: Conversation, changes: dict[str, Any], tell: Tell) -> None:
    """Change settings of a conversation. `tell` takes remarks. Whoever holds the old decoder keeps its memory taken.

    Raises what loading does, and KeyboardInterrupt on Ctrl-C; then the conversation is as it was, unless the error
    says otherwise. A Ctrl-C that comes when all is loaded is too late and is not raised.
    """
    with Interrupts():  # what is between the loads must not be left half done
        if changes.keys() & set(LOADED):
            _load(conversation, replace(_named(conversation.model), **changes), tell)
            _tidy()
        else:
            _take_up(lambda: conversation.configure(**changes))
        conversation.changed |= changes.keys()


def _load(conversation: Conversation, config: Config, tell: Tell) -> None:
    if conversation.is_released:
        left = conversation.model if conversation.model.target is not None else None
        _adopt(conversation, load_model(config, reuse=left, tell=_loading(tell)))
    elif shortage := _try(conversation, config, tell):
        tell(f"{shortage}. So the old one is let go before the new one is loaded")
        _replace(conversation, config, tell)


def _adopt(conversation: Conversation, model: Model) -> None:
    _take_up(lambda: conversation.adopt(model))


def _take_up(action: Callable[[], None]) -> None:
    """Ctrl-C ends it before it is done, and not afterwards."""
    with Interrupts() as interrupts:
        if interrupts.requested:
            raise KeyboardInterrupt
        interrupts.call(action)


def _loading(tell: Tell) -> Tell:
    return lambda line: tell(f"loading {line}")


def _named(model: Model) -> Config:
    """Its settings with the model named: what is picked where none is named depends on how much memory is free."""
    return replace(model.config, model=model.config.model or model.pair.name)


def _try(conversation: Conversation, config: Config, tell: Tell) -> str:
    """Load beside what is there; what was missing, in words, where the memory does not hold both."""
    try:
        _adopt(conversation, load_model(config, reuse=conversation.model, tell=_loading(tell)))
    except (NotEnoughMemory, MemoryError, RuntimeError) as err:
        if not is_shortage(err):
            raise
        if isinstance(err, NotEnoughMemory) and err.needed > err.free + _freed(conversation.model, config):
            raise
        return str(err).splitlines()[0].partition(". ")[0]
    return ""


def _freed(model: Model, config: Config) -> int:
    from dflash_cli.loading import estimated_bytes

    return estimated_bytes(model, config)


def _replace(conversation: Conversation, config: Config, tell: Tell) -> None:
    """Let go of the old, but for weights that stay in use, and load the new; the old one again where that fails."""
    from dflash_cli.loading import shares_target

    old, kept = _named(conversation.model), None
    if shares_target(conversation.model, config):
        kept = conversation.model
    conversation.release(keep_weights=kept is not None)
    _tidy()
    try:
        _adopt(conversation, load_model(config, reuse=kept, tell=_loading(tell)))
        return
    except BaseException as err:
        traceback.clear_frames(err.__traceback__)  # what was loaded so far must not stand in the way
        failure = err
    tell("going back to the old one")
    _go_back(conversation, old, kept, failure)
    raise failure


def _go_back(conversation: Conversation, old: Config, kept: Model | None, failure: BaseException) -> None:
    """Load the old one again; Ctrl-C waits until it is there."""
    from dflash_cli import loading

    _tidy()
    try:
        uninterrupted(lambda: conversation.adopt(kept or loading.load(old)))
    except (DFlashError, ValueError, RuntimeError, MemoryError) as err:
        reason = str(failure) or "interrupted"
        raise DFlashError(
            f"{reason}; and the old one cannot be loaded any more: {err}. Nothing is lost, but no model is loaded: "
            "/model NAME loads one"
        ) from failure


def is_shortage(err: BaseException) -> bool:
    """Whether there was too little memory: told by us, by Python, or by torch, which has no one type for it."""
    words = str(err).lower()
    return isinstance(err, NotEnoughMemory | MemoryError) or "out of memory" in words or "can't allocate" in words


def _tidy() -> None:
    """Give back what nobody refers to any longer."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
