"""What each profile key expects, read from the models: for error messages and for reading `--set` values."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from specctl.config.profile import Profile

Location = tuple[str | int, ...]

_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a table",
    "array": "a list",
}


@cache
def schema() -> dict[str, Any]:
    """The profile's JSON schema as pydantic makes it, references unresolved."""
    return Profile.model_json_schema()


def field_schema(location: Location) -> Mapping[str, Any] | None:
    """The JSON schema of one key, references and `null` alternatives resolved; None for an unknown key."""
    node: Mapping[str, Any] = schema()
    for part in location:
        found = node.get("items") if isinstance(part, int) else node.get("properties", {}).get(part)
        if found is None and isinstance(part, str) and isinstance(node.get("additionalProperties"), Mapping):
            found = node["additionalProperties"]
        if found is None:
            return None
        node = _resolved(found)
    return node


def is_text(location: Location) -> bool:
    found = field_schema(location)
    return found is not None and found.get("type") == "string"


def expected(location: Location) -> str:
    """What a value at `location` must be, for example "an integer from 0 to 65535"."""
    found = field_schema(location) or {}
    if choices := found.get("enum", [found["const"]] if "const" in found else None):
        return " or ".join(f'"{choice}"' for choice in choices)
    kind = _TYPES.get(str(found.get("type")), "another type")
    low, high = found.get("minimum"), found.get("maximum")
    if low is not None and high is not None:
        return f"{kind} from {low:g} to {high:g}"
    if low is not None:
        return f"{kind}, at least {low:g}"
    if "exclusiveMinimum" in found and "exclusiveMaximum" in found:
        return f"{kind} between {found['exclusiveMinimum']:g} and {found['exclusiveMaximum']:g}"
    if found.get("minLength") or found.get("minItems"):
        return f"{kind}, not empty"
    if pattern := found.get("pattern"):
        return f"{kind} that matches {pattern}"
    return kind


def known_keys(location: Location) -> list[str]:
    """Keys that the table at `location` may have."""
    found = field_schema(location)
    return list(found.get("properties", {})) if found else []


def nearest_key(location: Location) -> str | None:
    """The known key most like the unknown one at `location`: beside it, or in any other table, written in full."""
    *parent, key = location
    if near := nearest(str(key), known_keys(tuple(parent))):
        return near
    for table in known_keys(()):
        if (near := nearest(str(key), known_keys((table,)))) is not None:
            return f"{table}.{near}"
    return None


def nearest(word: str, choices: Sequence[str]) -> str | None:
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return close[0] if close else None


def dotted(location: Location) -> str:
    """`("modes", 0, "topk")` as "modes[0].topk"."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    if options := node.get("anyOf"):
        node = next(option for option in options if option.get("type") != "null")
    if reference := node.get("$ref"):
        target: Mapping[str, Any] = schema()["$defs"][str(reference).rsplit("/", 1)[-1]]
        return target
    return node
