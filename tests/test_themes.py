"""Themes must serve eyes that see fewer colours."""

from __future__ import annotations

import itertools

import pytest
from rich.style import Style

from dflash_cli.themes import DEFAULT_THEME, THEMES

Triple = tuple[float, float, float]
# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
DEFICIENCIES = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
KINDS = ("pending", "accepted", "rejected", "bonus")


def linear(channel: int) -> float:
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def seen(color: str, matrix: tuple[Triple, ...]) -> Triple:
    """CIE Lab of a hex colour as an eye with the deficiency sees it."""
    rgb = [linear(int(color[i : i + 2], 16)) for i in (1, 3, 5)]
    red, green, blue = (max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True))) for row in matrix)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("name", ["okabe-ito", "tol"])
def test_hues_stay_apart(name: str, deficiency: str) -> None:
    theme = THEMES[name]
    hues = [style.split()[-1] for style in (theme.accepted, theme.rejected, theme.bonus)]
    for one, other in itertools.combinations(hues, 2):
        labs = [seen(each, DEFICIENCIES[deficiency]) for each in (one, other)]
        assert sum((a - b) ** 2 for a, b in zip(*labs, strict=True)) ** 0.5 > 15, (one, other)


@pytest.mark.parametrize("name", THEMES)
def test_no_kind_is_told_by_its_hue_alone(name: str) -> None:
    styles = [Style.parse(getattr(THEMES[name], kind)) for kind in KINDS]
    attributes = [(each.bold, each.dim, each.italic, each.underline, each.strike) for each in styles]
    assert len(set(attributes)) == len(KINDS)


def test_every_style_can_be_read() -> None:
    for theme in THEMES.values():
        for style in vars(theme).values():
            Style.parse(style)
    assert DEFAULT_THEME in THEMES
