"""Themes: shipped ones are whole and readable, an operator's own are checked, the choice follows the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.color import Color

from specctl.tui import themes
from specctl.tui.glyphs import ASCII, BLOCK, UNICODE, glyphs_for

SHIPPED = sorted(themes.shipped_dir().glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_themes_load(path: Path) -> None:
    assert themes.read_theme(path).name == path.stem


@pytest.mark.parametrize(("name", "least"), [("dark", 4.5), ("light", 4.5), ("high-contrast", 7.0)])
def test_text_can_be_read(name: str, least: float) -> None:
    theme = themes.read_theme(themes.shipped_dir() / f"{name}.toml")
    back = Color.parse(theme.background or "")
    for role in set(themes.ROLES) - {"rule", "chip-idle"}:
        ratio = contrast(Color.parse(theme.variables[f"role-{role}"]), back)
        assert ratio >= least, f"{role}: {ratio:.1f}"


def contrast(a: Color, b: Color) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(color: Color) -> float:
        parts = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in color.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_an_operators_theme_replaces_and_a_broken_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "themes"
    folder.mkdir(parents=True)
    text = (themes.shipped_dir() / "dark.toml").read_text()
    (folder / "mine.toml").write_text(text.replace('name = "dark"', 'name = "mine"'))
    (folder / "bad.toml").write_text(text.replace("#5eb1ff", "blau"))
    (folder / "worse.toml").write_text("name = [")
    found, problems = themes.load_themes({"SPECCTL_HOME": str(tmp_path)})
    assert "mine" in {t.name for t in found}
    assert len(problems) == 2
    assert "colors.primary is 'blau'" in problems[0]
    assert all("\n" not in p for p in problems)


@pytest.mark.parametrize(
    ("environ", "system", "want"),
    [
        ({}, "truecolor", "dark"),
        ({}, "256", "dark"),
        ({}, "standard", "terminal"),
        ({}, None, "mono"),
        ({"NO_COLOR": "1"}, "truecolor", "mono"),
        ({"NO_COLOR": "1", "SPECCTL_THEME": "light"}, "truecolor", "mono"),
        ({"SPECCTL_THEME": "light"}, "truecolor", "light"),
        ({"SPECCTL_THEME": "none such"}, "truecolor", "dark"),
    ],
)
def test_choice(environ: dict[str, str], system: str | None, want: str) -> None:
    assert themes.choose(environ, [p.stem for p in SHIPPED], system) == want


@pytest.mark.parametrize(
    ("environ", "want"),
    [
        ({"LANG": "en_US.UTF-8"}, UNICODE),
        ({}, UNICODE),
        ({"LC_ALL": "C"}, ASCII),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, ASCII),
        ({"LANG": "de_DE.ISO-8859-1"}, ASCII),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "C"}, UNICODE),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, BLOCK),
        ({"LANG": "C.UTF-8", "SPECCTL_GLYPHS": "ascii"}, ASCII),
    ],
)
def test_glyphs(environ: dict[str, str], want: object) -> None:
    assert glyphs_for(environ) is want
