"""What readers see of an answer that may begin with thinking. Pure; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dflash_cli.thinking import TAGS

GAP = "\n\n"  # between thinking and answer on the screen


@dataclass(frozen=True, slots=True)
class Parts:
    """How far the two parts of an answer are shown: thinking without its tags, answer, no blanks around.

    Without thinking an answer is shown as it is.
    """

    thought: bool = False
    """Whether there is thinking; `has_thinking`, `has_answer`: whether some of the part's text was shown."""
    has_thinking: bool = False
    has_answer: bool = False
    blanks: str = ""
    """At the end of the thinking so far: shown once more of it comes."""

    def show(self, text: str, *, thinking: bool) -> tuple[str, Parts]:
        """What to show of the next piece, and the parts after it."""
        if thinking:
            whole = self.blanks + text.removeprefix(TAGS[0]).removesuffix(TAGS[1])
            whole = whole if self.has_thinking else whole.lstrip()
            shown = whole.rstrip()
            return shown, Parts(True, self.has_thinking or bool(shown), self.has_answer, whole[len(shown) :])
        if not self.thought or self.has_answer:
            return text, self
        shown = text.lstrip()
        return shown, replace(self, has_answer=bool(shown), blanks="")
