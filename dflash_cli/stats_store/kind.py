"""What kind of text an answer is, told from the answer's own text by a small rule. Imports no torch.

In this order: `thinking`, where more than half of the tokens are; `code`, where at least a third of the characters
stand in fences, or half of the lines look like code; `math`, where at least a quarter of the lines outside of fences
hold TeX or an equation; else `prose`.
"""

from __future__ import annotations

import re

from dflash_cli.thinking import TAGS

KINDS = ("thinking", "code", "math", "prose")
FENCED, CODE_LINES, MATH_LINES = 1 / 3, 1 / 2, 1 / 4
READ = 20_000  # characters that are looked at: the rule must not cost time in a long answer
_FENCE = re.compile(r"^\s*(?:```|~~~)[^\n]*\n(.*?)(?:^\s*(?:```|~~~)\s*$|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(
    r"(def|class|import|from|return|elif|function|const|let|var|public|private|static|struct|fn|#include|SELECT|INSERT)"
    r"\b.*[\w;:){}\]>]$|.*[;{}]$|[\w.\[\]]+ [-+*/|&]?= .*[\w)\]\"']$|(if|for|while|else|try|except)\b.*[:{]$"
)
_MATH = re.compile(
    r"\$[^$\n]+\$|\\[\[(]|\\(frac|sqrt|boxed|times|cdot|sum|int|le|ge|begin)\b|[\d)\w%]\s*=\s*[-$€(]?\d"
    r"|\d\s*[-+*/×÷^]\s*\d"
)


def kind_of(text: str, thinking_tokens: int, num_tokens: int) -> str:
    """One of KINDS, for an answer with its thinking; `num_tokens` are all of it."""
    if 2 * thinking_tokens > num_tokens:
        return "thinking"
    answer = text.rpartition(TAGS[1])[2][:READ]
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if not lines:
        return "prose"
    fenced = sum(len(match[0]) for match in _FENCE.finditer(answer))
    if fenced >= FENCED * len(answer) or _share(_CODE, lines, whole=True) >= CODE_LINES:
        return "code"
    outside = [line.strip() for line in _FENCE.sub("", answer).splitlines() if line.strip()]
    return "math" if _share(_MATH, outside) >= MATH_LINES else "prose"


def _share(pattern: re.Pattern[str], lines: list[str], *, whole: bool = False) -> float:
    """Of the lines, those with the pattern."""
    find = pattern.fullmatch if whole else pattern.search
    return sum(find(line) is not None for line in lines) / len(lines) if lines else 0.0
