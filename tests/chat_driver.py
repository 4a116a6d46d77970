"""`dflash chat` with a scripted model, as a process: `python -m tests.chat_driver FOLDER ANSWERS_JSON ...`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dflash_cli import loading
from dflash_cli.cli import main
from dflash_cli.config import Config
from tests.scripted_model import ScriptedModel, scripted_model

SECONDS_A_PASS = 0.05


def load(config: Config, **_: Any) -> ScriptedModel:
    model = scripted_model(Path(sys.argv[1]), json.loads(sys.argv[2]), quiet=config.quiet)
    model.backend.on_call = lambda kind: time.sleep(SECONDS_A_PASS if kind == "verify" else 0)
    return model


if __name__ == "__main__":
    loading.load = load  # type: ignore[assignment]
    sys.exit(main(["chat", *sys.argv[3:]]))
