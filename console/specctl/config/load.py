"""Finding, reading and overriding profiles. A failure is one InvalidProfile line: where, field, what is expected."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specctl.config.fields import Location, dotted, expected, is_text, nearest, nearest_key
from specctl.config.paths import Paths
from specctl.config.profile import Profile
from specctl.core.errors import InvalidProfile

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEntry:
    """One profile that can be loaded by name. `problem` says why it cannot, or None. source: "user" or "shipped"."""

    name: str
    path: Path
    source: str
    description: str = ""
    problem: str | None = None


def load_profile(name_or_path: str, overrides: Mapping[str, str], paths: Paths) -> Profile:
    """The profile called `name_or_path` (user's folder first, then shipped), or the one in that TOML file.

    overrides: "table.key" -> a TOML value as text; text fields take the text itself.
    Raises InvalidProfile for an unknown name, an unreadable file, bad TOML, and any key or value that is not valid.
    """
    path = find_profile(name_or_path, paths)
    raw = _read_toml(path)
    _name_from_file(raw, path)
    origins = {_override(raw, key, text): _set_option(key, text) for key, text in overrides.items()}
    try:
        return Profile.model_validate(raw)
    except ValidationError as error:
        raise InvalidProfile(_describe(error, str(path), origins)) from error


def list_profiles(paths: Paths) -> list[ProfileEntry]:
    """Every profile that has a name, by name; the user's one hides a shipped one of the same name."""
    found: dict[str, ProfileEntry] = {}
    for source, folder in (("shipped", shipped_folder()), ("user", paths.profiles_dir)):
        for path in sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else ():
            found[path.stem] = _entry(path, source, paths)
    return [found[name] for name in sorted(found)]


def find_profile(name_or_path: str, paths: Paths) -> Path:
    """The file of a profile. A word without a slash and without .toml is a name, anything else a path."""
    if not _NAME.fullmatch(name_or_path) or name_or_path.endswith(_SUFFIX):
        path = Path(name_or_path).expanduser()
        if path.is_dir():
            raise InvalidProfile(f"profile {name_or_path!r} is a folder", remedy="Name the TOML file in it")
        if not path.is_file():
            raise InvalidProfile(
                f"profile file {name_or_path!r} does not exist",
                remedy="Run `specctl profiles list` to see the profiles that have a name",
            )
        return path
    for folder in (paths.profiles_dir, shipped_folder()):
        if (path := folder / f"{name_or_path}{_SUFFIX}").is_file():
            return path
    names = sorted({entry.name for entry in list_profiles(paths)})
    near = nearest(name_or_path, names)
    hint = f"; did you mean {near}?" if near else ""
    raise InvalidProfile(
        f"no profile is called {name_or_path!r}{hint} (known: {', '.join(names)})",
        remedy=None if near else f"Put your own into {paths.profiles_dir}",
    )


def shipped_folder() -> Path:
    return Path(str(resources.files("specctl_profiles")))


def _entry(path: Path, source: str, paths: Paths) -> ProfileEntry:
    try:
        profile = load_profile(str(path), {}, paths)
    except InvalidProfile as error:
        return ProfileEntry(name=path.stem, path=path, source=source, problem=error.message)
    return ProfileEntry(name=path.stem, path=path, source=source, description=profile.profile.description)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidProfile(f"{path}: not valid TOML: line {line} is not UTF-8") from error
    except OSError as error:
        raise InvalidProfile(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidProfile(f"{path}: not valid TOML: {_with_position(str(error), text)}") from error


def _with_position(message: str, text: str) -> str:
    """The parser names line and column everywhere but at the end of the file."""
    lines = text.split("\n")
    return message.replace(
        "at end of document", f"at line {len(lines)}, column {len(lines[-1]) + 1}, the end of the file"
    )


def _name_from_file(raw: dict[str, Any], path: Path) -> None:
    about = raw.setdefault("profile", {})
    if isinstance(about, dict) and not about.get("name"):
        about["name"] = path.stem


def _set_option(key: str, text: str) -> str:
    """The override as it was typed, on one line."""
    return f"--set {key}={text}" if text.isprintable() else f"--set {key}={text!a}"


def _override(raw: dict[str, Any], key: str, text: str) -> Location:
    """Put one `--set key=text` into `raw`; returns the key's location."""
    location = tuple(key.split("."))
    if not all(location):
        raise InvalidProfile(f"{_set_option(key, text)}: {key!r} is not a key", remedy="Write --set table.key=value")
    table = raw
    for depth, part in enumerate(location[:-1], start=1):
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise InvalidProfile(f"{_set_option(key, text)}: {'.'.join(location[:depth])} is not a table")
        table = inner
    table[location[-1]] = _value(text, text_wanted=is_text(location))
    return location


def _value(text: str, *, text_wanted: bool) -> object:
    """`text` as a TOML value; the bare text where it is none, or where text is wanted and it is something else."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed["value"]
    if set(parsed) != {"value"} or (text_wanted and not isinstance(value, str)):
        return text
    return value


def _describe(error: ValidationError, source: str, origins: Mapping[Location, str]) -> str:
    """One line for the most telling problem, and how many more there are."""
    problems = _telling(error.errors(include_url=False))
    first = problems[0]
    location = first["loc"]
    origin = next((text for key, text in origins.items() if location[: len(key)] == key), source)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{origin}: {_line(first)}{more}"


def _telling(errors: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Without errors that only follow from another below them; unknown keys first, since a typo makes a key missing."""
    rank = {"extra_forbidden": 0, "missing": 2}
    locations = [e["loc"] for e in errors]
    kept = [e for e in errors if not any(len(o) > len(e["loc"]) and o[: len(e["loc"])] == e["loc"] for o in locations)]
    return sorted(kept, key=lambda e: rank.get(e["type"], 1))


def _line(error: ErrorDetails) -> str:
    location, field = error["loc"], dotted(error["loc"])
    match error["type"]:
        case "extra_forbidden":
            near = nearest_key(location)
            return f"{field}: unknown key" + (f"; did you mean {near}?" if near else "")
        case "missing":
            return f"{field}: missing; it must be {expected(location)}"
        case "value_error":
            return f"{field}: {error['ctx']['error']}"
        case _:
            return f"{field}: {_shown(error['input'])} is not valid; expected {expected(location)}"


def _shown(value: object) -> str:
    """The value on one short line, text in quotes, tables and lists by their kind."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, bool):
        return str(value).lower()
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
