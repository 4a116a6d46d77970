"""Colours of the overlay: names of themes and the style of each kind of text. Imports nothing, so help is quick.

Hues are from palettes made for all kinds of colour vision: Okabe and Ito (2008), "Color Universal Design"; Paul Tol
(2021), "Colour schemes", bright. No kind is told by its hue alone: fresh text differs in attributes too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """A style, in rich's words, for each kind of text. `calm_*`: the same text once a later block has come."""

    pending: str
    accepted: str
    rejected: str
    bonus: str
    calm_accepted: str
    calm_bonus: str
    faint: str = "dim"


THEMES = {
    "okabe-ito": Theme(
        pending="dim italic",
        accepted="bold #009e73",
        rejected="strike #d55e00",
        bonus="underline #56b4e9",
        calm_accepted="#009e73",
        calm_bonus="#56b4e9",
    ),
    "tol": Theme(
        pending="dim italic",
        accepted="bold #228833",
        rejected="strike #ee6677",
        bonus="underline #66ccee",
        calm_accepted="#228833",
        calm_bonus="#66ccee",
    ),
    # The terminal's own sixteen colours, which its owner may have chosen with care.
    "terminal": Theme(
        pending="dim italic",
        accepted="bold green",
        rejected="strike red",
        bonus="underline bright_blue",
        calm_accepted="green",
        calm_bonus="bright_blue",
    ),
    "mono": Theme(
        pending="dim italic",
        accepted="bold",
        rejected="dim strike",
        bonus="underline",
        calm_accepted="not bold",
        calm_bonus="underline",
    ),
}
DEFAULT_THEME = "okabe-ito"
