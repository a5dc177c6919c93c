"""Colour themes: TOML files shipped in `specctl_themes` and in the operator's own folder, made into textual's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "dark"
NO_COLOR = "mono"
SIXTEEN = "terminal"
STYLESHEET = "specctl.tcss"
ROLES = [
    *("strong", "dim", "rule", "title", "key", "busy", "stale", "chip-idle"),
    *("mode-1", "mode-2", "mode-3", "mode-4", "mode-off"),
]
COLORS = [
    *("background", "surface", "panel", "foreground", "primary", "secondary"),
    *("accent", "success", "warning", "error"),
]


class ThemeError(ValueError):
    """A theme file that cannot be used: one line naming file and field."""


def shipped_dir() -> Path:
    return Path(str(files("specctl_themes")))


def user_dir(environ: Mapping[str, str]) -> Path:
    """The operator's themes: SPECCTL_HOME/config/themes, else the XDG configuration folder's specctl/themes."""
    if home := environ.get("SPECCTL_HOME"):
        return Path(home) / "config" / "themes"
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "specctl" / "themes"


def _table(data: Mapping[str, object], table: str, names: list[str], path: Path) -> dict[str, str]:
    got = data.get(table)
    if not isinstance(got, dict):
        raise ThemeError(f"theme {path}: table [{table}] is missing")
    for name in names:
        color = got.get(name)
        try:
            Color.parse(color)
        except (ColorParseError, TypeError) as error:
            raise ThemeError(f'theme {path}: {table}.{name} is {color!r}, not a colour such as "#4cc2a5"') from error
    if unknown := sorted(set(got) - set(names)):
        raise ThemeError(f"theme {path}: {table}.{unknown[0]} is not known; known are {', '.join(names)}")
    return {name: str(got[name]) for name in names}


def read_theme(path: Path) -> Theme:
    """The theme in a TOML file. Raises ThemeError naming the file and the field."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ThemeError(f"theme {path}: {error}") from error
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise ThemeError(f"theme {path}: name is {name!r}, not a word")
    colors = _table(data, "colors", COLORS, path)
    roles = _table(data, "roles", ROLES, path)
    theme = Theme(name=name, primary=colors["primary"], ansi=data.get("ansi", False) is True)
    # Textual's own sheets ask for more variables of a theme in terminal colours than of one in RGB.
    theme.variables = dict(BUILTIN_THEMES["ansi-dark"].variables) if theme.ansi else {}
    theme.variables |= {f"role-{role}": color for role, color in roles.items()}
    theme.dark = data.get("dark", True) is True
    for field, color in colors.items():
        setattr(theme, field, color)
    return theme


def load_themes(environ: Mapping[str, str]) -> tuple[list[Theme], list[str]]:
    """Shipped themes, then the operator's (which may replace them by name); and what is wrong with those left out."""
    themes: dict[str, Theme] = {}
    problems: list[str] = []
    for folder in (shipped_dir(), user_dir(environ)):
        for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            try:
                theme = read_theme(path)
            except ThemeError as error:
                problems.append(str(error))
                continue
            themes[theme.name] = theme
    return list(themes.values()), problems


def choose(environ: Mapping[str, str], names: list[str], color_system: str | None) -> str:
    """The theme to start with: NO_COLOR, then SPECCTL_THEME, then what the terminal can show."""
    if environ.get("NO_COLOR"):
        return NO_COLOR
    wanted = environ.get("SPECCTL_THEME", "")
    if wanted in names:
        return wanted
    return {None: NO_COLOR, "standard": SIXTEEN}.get(color_system, DEFAULT)
