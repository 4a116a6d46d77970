"""Measure the embedded pair side by side: `python -m tests.measure [--tokens N] [--rounds N]`. A command, not a test.

Hugging Face generate, plain decoding and DFlash take turns on the same weights, prompts and machine; medians are
printed. Start-up, help and peak memory are measured in processes of their own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from dflash_cli import load
from dflash_cli.fetch import fetch
from dflash_cli.model import Model
from dflash_cli.speculative import Decoder
from dflash_cli.stats import AnswerStats

PROMPTS = {
    "math": "Tom has 3 boxes with 15 pencils each and gives away 9 pencils. How many pencils does he have left?",
    "code": "Write a Python function that returns the n-th Fibonacci number.",
    "chat": "Why is the sky blue?",
}
FIRST_TOKEN = """
import time; begun = time.perf_counter()
from dflash_cli import load
next(iter(load("smollm2-135m").stream("Why is the sky blue?")))
print(time.perf_counter() - begun)
"""
ANSWER = """
import resource
from dflash_cli import load
for _ in load("smollm2-135m", max_new_tokens=128).stream("Why is the sky blue?"): pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def ours(decoder: Decoder, model: Model, ids: list[int]) -> tuple[float, float]:
    """Milliseconds a token, prefill included, and tau."""
    begun, stats = time.perf_counter(), AnswerStats()
    for event in decoder.generate(model.request(ids)):
        stats.add(event)
    return (time.perf_counter() - begun) / len(stats.ids) * 1e3, stats.tau or 0.0


def huggingface(hf: torch.nn.Module, ids: list[int], tokens: int) -> tuple[float, float]:
    """Milliseconds a token of `generate`, prefill included."""
    prompt = torch.tensor([ids])
    begun = time.perf_counter()
    text = hf.generate(  # type: ignore[operator]
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=False
    )
    return (time.perf_counter() - begun) / (text.shape[1] - len(ids)) * 1e3, 0.0


def side_by_side(tokens: int, rounds: int) -> None:
    """The table."""
    from transformers import LlamaForCausalLM

    folder = fetch("embedded:smollm2-135m", offline=False, quiet=False)
    hf = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    model = load("smollm2-135m", dtype="bfloat16", max_new_tokens=tokens, context=1024)
    plain, fast = model.plain_decoder(), model.decoder()
    print(f"{'prompt':8}{'hf-generate':>14}{'plain':>10}{'dflash':>10}{'plain/hf':>10}{'dflash/hf':>11}{'tau':>7}")
    for kind, prompt in PROMPTS.items():
        ids = model.encode(model.conversation(prompt))
        runs: dict[str, Callable[[], tuple[float, float]]] = {
            "hf": lambda ids=ids: huggingface(hf, ids, tokens),  # type: ignore[misc]
            "plain": lambda ids=ids: ours(plain, model, ids),  # type: ignore[misc]
            "dflash": lambda ids=ids: ours(fast, model, ids),  # type: ignore[misc]
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        for round_ in range(rounds + 1):
            for name, run in runs.items():
                for each in (plain, fast):
                    each.resident[0].length = 0  # every round pays its prefill, as Hugging Face does
                ms, tau = run()
                if round_:  # the first one warms up
                    times[name].append(ms)
        median = {name: statistics.median(each) for name, each in times.items()}
        print(
            f"{kind:8}{median['hf']:>9.1f} ms{'':2}{median['plain']:>7.1f} ms{median['dflash']:>7.1f} ms"
            f"{median['hf'] / median['plain']:>9.2f}×{median['hf'] / median['dflash']:>10.2f}×{tau:>7.2f}"
        )


def timed(*command: str) -> float:
    """Seconds a command takes; median of 5."""
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def printed(code: str) -> float:
    """The number a Python process prints; median of 3."""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(3)]
    return statistics.median(float(run.stdout) for run in runs)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, bfloat16, greedy, {arguments.tokens} tokens")
    side_by_side(arguments.tokens, arguments.rounds)
    print(f"import to first token  {printed(FIRST_TOKEN):6.2f} s")
    print(f"dflash --help          {timed(sys.executable, '-m', 'dflash_cli', '--help'):6.2f} s")
    kilo = 1 if sys.platform == "darwin" else 1024
    print(f"peak memory            {printed(ANSWER) * kilo / 1e9:6.2f} GB")


if __name__ == "__main__":
    main()
