"""What readers see of an answer that may begin with thinking. Pure; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dflash_cli.thinking import TAGS

GAP = "\n\n"  # between thinking and answer on the screen
OPENS, CLOSES = TAGS


@dataclass(frozen=True, slots=True)
class Parts:
    """How far the two parts of an answer are shown: thinking without its tags, answer, no blanks around.

    Without thinking an answer is shown as it is. The text of a tag may come late and in pieces, where it could be the
    beginning of a stop string.
    """

    thought: bool = False
    """Whether there is thinking; `has_thinking`, `has_answer`: whether some of the part's text was shown."""
    has_thinking: bool = False
    has_answer: bool = False
    held: str = ""
    """Tags, blanks, and what may become a tag: not shown unless more comes that makes it text."""

    def show(self, text: str, *, thinking: bool) -> tuple[str, Parts]:
        """What to show of the next piece, and the parts after it."""
        if not thinking and (not self.thought or self.has_answer):
            return text, self
        whole = self.held + text
        body = self._after_opening(whole)
        if thinking:
            shown = _before_closing(body)
            held = body[len(shown) :] if shown or self.has_thinking else whole
            return shown, Parts(True, self.has_thinking or bool(shown), self.has_answer, held)
        shown = body.partition(CLOSES)[2].lstrip()  # the tag may come after its id did
        return shown, replace(self, has_answer=bool(shown), held="" if shown else whole)

    @property
    def rest(self) -> str:
        """What was held and is text of the thinking after all, where nothing more comes."""
        body = self.held if self.has_thinking else self.held.lstrip().removeprefix(OPENS).lstrip()
        return body.rstrip().removesuffix(CLOSES).rstrip()

    def _after_opening(self, whole: str) -> str:
        if self.has_thinking:
            return whole
        body = whole.lstrip()
        return "" if OPENS.startswith(body) else body.removeprefix(OPENS).lstrip()


def _before_closing(body: str) -> str:
    """The thinking without its closing tag, however much of that is there, and without blanks at its end."""
    tag = next((size for size in range(len(CLOSES), 0, -1) if body.endswith(CLOSES[:size])), 0)
    return body[: len(body) - tag].rstrip()
