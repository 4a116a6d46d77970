"""A tiny pair, and eager engines over it with a short context."""

from __future__ import annotations

from typing import Any

import torch

from backends import create_backend
from backends.engine import Engine
from tests.tiny import VOCAB, make_drafter, make_target

TARGET, DRAFTER = make_target(), make_drafter()
IDS = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(2))


def build(drafter: Any = DRAFTER, **settings: Any) -> Engine:
    engine = create_backend("eager", TARGET, drafter, **{"max_len": 64, **settings})
    assert isinstance(engine, Engine)
    return engine
