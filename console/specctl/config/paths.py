"""Where specctl keeps its files. Light on purpose: every command imports it, `specctl status` must start fast."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specctl.core.errors import Refused, UsageError

MAX_SOCKET_BYTES = 100
"""A Unix socket's path may have 107 bytes (`sun_path`); the rest is room for temporary names beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Every folder and file that specctl owns. Nothing is created by asking; all paths are absolute."""

    config_dir: Path
    data_dir: Path
    state_dir: Path
    runtime_dir: Path
    socket: Path

    @property
    def lock(self) -> Path:
        return self.socket.with_suffix(".lock")

    @property
    def profiles_dir(self) -> Path:
        return self.config_dir / "profiles"

    @property
    def engines_dir(self) -> Path:
        return self.data_dir / "engines"

    @property
    def daemon_log(self) -> Path:
        return self.state_dir / "daemon.log"

    @property
    def runs_dir(self) -> Path:
        return self.state_dir / "runs"

    def run_dir(self, run: int) -> Path:
        return self.runs_dir / str(run)


def paths(env: Mapping[str, str] | None = None) -> Paths:
    """The folders that the environment `env` (default: this process's) asks for.

    SPECCTL_HOME puts all under one folder; otherwise the XDG base directories. SPECCTL_SOCKET names another socket.
    Raises UsageError when the socket's path is too long for the kernel.
    """
    env = os.environ if env is None else env
    if home := env.get("SPECCTL_HOME"):
        root = _absolute(home, env)
        config, data, state, runtime = (root / name for name in ("config", "data", "state", "run"))
    else:
        config = _xdg(env, "XDG_CONFIG_HOME", ".config")
        data = _xdg(env, "XDG_DATA_HOME", ".local/share")
        state = _xdg(env, "XDG_STATE_HOME", ".local/state")
        runtime = _xdg_runtime(env)
    socket = runtime / "specctld.sock"
    if named := env.get("SPECCTL_SOCKET"):
        socket = _absolute(named, env)
        runtime = socket.parent
    if (size := len(os.fsencode(socket))) > MAX_SOCKET_BYTES:
        raise UsageError(
            f"the socket path {socket} has {size} bytes, at most {MAX_SOCKET_BYTES} work",
            remedy="Set SPECCTL_SOCKET to a shorter path, for example /run/user/UID/specctl/specctld.sock",
        )
    return Paths(config_dir=config, data_dir=data, state_dir=state, runtime_dir=runtime, socket=socket)


def ensure_runtime_dir(where: Paths) -> None:
    """Create the socket's folder with mode 0700, or prove that the one that is there is only ours.

    Raises Refused when the folder is a link, belongs to someone else or lets others in: a socket there could be
    replaced or used by another user.
    """
    folder = where.runtime_dir
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise Refused(
            f"the runtime folder {folder} cannot be made: {error.strerror}",
            remedy="Set SPECCTL_SOCKET to a path in a folder that you may write to",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise Refused(
            f"the runtime folder {folder} is a link or belongs to another user",
            remedy="Set SPECCTL_SOCKET to a path in a folder of your own",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Refused(
            f"the runtime folder {folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o})",
            remedy=f"Run `chmod 700 {folder}`, or set SPECCTL_SOCKET to a path in a folder of its own",
        )


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    """A base directory; the XDG specification says that a relative value is to be ignored."""
    value = Path(env.get(variable, ""))
    return (value if value.is_absolute() else _home(env) / fallback) / "specctl"


def _xdg_runtime(env: Mapping[str, str]) -> Path:
    value = Path(env.get("XDG_RUNTIME_DIR", ""))
    if value.is_absolute():
        return value / "specctl"
    return Path("/tmp") / f"specctl-{os.getuid()}"  # noqa: S108 - ensure_runtime_dir proves that it is ours


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _absolute(text: str, env: Mapping[str, str]) -> Path:
    path = _home(env) / text[2:] if text.startswith("~/") else Path(text)
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links and change the path's length
