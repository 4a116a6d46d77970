"""Optimisers of a drafter, their schedule, and their state as plain tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dflash_cli.train.recipe import Recipe

ADAM_BETAS = (0.9, 0.95)
FLOOR = 0.1  # share of the highest rate at which the cosine ends


class Optimizers:
    """Muon for the matrices and AdamW for the norms, or AdamW for all; one learning rate, cosine with warm-up.

    Muon's updates are scaled to AdamW's size (`match_rms_adamw`), so one rate does for both.
    """

    def __init__(self, named: dict[str, nn.Parameter], recipe: Recipe, num_steps: int) -> None:
        self.named, self.recipe, self.num_steps = named, recipe, num_steps
        matrices = [parameter for parameter in named.values() if parameter.ndim == 2]
        others = [parameter for parameter in named.values() if parameter.ndim != 2]
        rate, decay = recipe.learning_rate, recipe.weight_decay
        self.parts: list[torch.optim.Optimizer] = []
        if recipe.optimizer == "muon":
            self.parts.append(torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
            self.parts.append(torch.optim.AdamW(others, lr=rate, betas=ADAM_BETAS, weight_decay=0.0))
        else:
            groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
            self.parts.append(torch.optim.AdamW(groups, lr=rate, betas=ADAM_BETAS))

    def step(self, step: int) -> float:
        """Clip, move the weights by their gradients as step `step` (from 0) and forget these; the gradients' norm."""
        norm = float(nn.utils.clip_grad_norm_(list(self.named.values()), self.recipe.clip))
        if not math.isfinite(norm):
            return norm
        rate = self.recipe.learning_rate * schedule(step, self.num_steps, self.recipe.warmup)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()
            part.zero_grad(set_to_none=True)
        return norm

    def state(self) -> dict[str, Tensor]:
        """All state as tensors named `weight/key`."""
        return {f"{name}/{key}": value for name, key, value in self._state()}

    def _state(self) -> Iterator[tuple[str, str, Tensor]]:
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.named.items()}
        for part in self.parts:
            for parameter, values in part.state.items():
                yield from ((names[parameter], key, value) for key, value in values.items())

    def load(self, state: dict[str, Tensor]) -> None:
        """Take what `state` gave."""
        owners = {id(each): part for part in self.parts for group in part.param_groups for each in group["params"]}
        for full, value in state.items():
            name, _, key = full.rpartition("/")
            parameter = self.named[name]
            # Counters stay on the CPU, as torch keeps them.
            moved = value.clone() if value.ndim == 0 else value.to(parameter.device)
            owners[id(parameter)].state[parameter][key] = moved


def schedule(step: int, num_steps: int, warmup: float) -> float:
    """The share of the highest rate at a step: a line up, then half a cosine down to `FLOOR`."""
    rising = max(1, round(warmup * num_steps))
    if step < rising:
        return (step + 1) / rising
    done = (step - rising) / max(1, num_steps - rising)
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
