"""Which daemon a command talks to, and who talks."""

from __future__ import annotations

import os
from pathlib import Path

from specctl.client.blocking import Client
from specctl.config.paths import Paths, paths


def locate(socket: str | None) -> Paths:
    """The folders of the environment; `socket` (from --socket) stands above SPECCTL_SOCKET."""
    return paths({**os.environ, "SPECCTL_SOCKET": socket} if socket else None)


def connect(socket: str | None) -> Client:
    return Client(locate(socket).socket)


def actor() -> str:
    """The operator's name for the audit trail, as the shell tells it; "" = whoever the socket's peer is."""
    for variable in ("SUDO_USER", "LOGNAME", "USER"):
        if name := os.environ.get(variable):
            return name
    return ""


def profile_reference(profile: str) -> str:
    """A profile's name as it is; a path made absolute, since the daemon has another working folder."""
    if "/" in profile or profile.endswith(".toml"):
        return str(Path(profile).expanduser().absolute())
    return profile


def parse_overrides(given: list[str]) -> dict[str, str]:
    """`--set table.key=value` texts as a mapping; the last one of a key counts. Raises UsageError."""
    overrides: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            from specctl.core.errors import UsageError

            raise UsageError(f"--set {text!r} has no key=value", remedy="Write --set table.key=value")
        overrides[key.strip()] = value
    return overrides
