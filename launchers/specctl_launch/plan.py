"""The launch plan: all that a start of the engine needs, decided before anything starts."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from specctl.config.paths import Paths
from specctl.config.profile import Profile
from specctl.core.errors import Refused
from specctl.core.modes import Mode
from specctl_launch import environment, overlay
from specctl_launch.argv import server_argv
from specctl_launch.engines import planned_python

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - names where to connect


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A key for the engine: the option's name in SGLang's config file, and the variable that holds the value."""

    option: str
    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What to start and with which environment.

    argv: the whole command line. env_added / env_removed: relative to the inherited environment (`environment()`
    applies them). run_dir: the run's folder; `prepare` fills it. overlay_dir: first on PYTHONPATH. url: where to
    reach the server from this machine. boot_mode: the mode that the server is launched in. secrets: keys that
    `prepare` writes to `secrets_file`; their values are in no plan.
    """

    profile: Profile
    run_dir: Path
    python: Path
    argv: tuple[str, ...]
    env_added: Mapping[str, str]
    env_removed: tuple[str, ...]
    host: str
    port: int
    url: str
    boot_mode: Mode
    modes: tuple[Mode, ...]
    secrets: tuple[Secret, ...] = ()

    @property
    def overlay_dir(self) -> Path:
        return self.run_dir / "overlay"

    @property
    def status_dir(self) -> Path:
        return self.run_dir / "status"

    @property
    def metrics_dir(self) -> Path:
        return self.run_dir / "metrics"

    @property
    def secrets_file(self) -> Path:
        return _secrets_file(self.run_dir)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """The engine's whole environment."""
        kept = {name: value for name, value in inherited.items() if name not in self.env_removed}
        return kept | dict(self.env_added)


def make_plan(
    profile: Profile,
    paths: Paths,
    *,
    run_dir: Path,
    run_marker: str = "",
    port: int | None = None,
    inherited: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """The plan to launch `profile` on this machine. Reads, but writes nothing and starts nothing.

    run_marker: SPECCTL_RUN, `<boot id>:<daemon uid>:<run>`. port: overrides the profile's, for a restart at the same
    address. inherited: the environment that the engine will inherit, by default this process's.
    Raises Refused when no free port can be had.
    """
    inherited = os.environ if inherited is None else inherited
    host = profile.server.host
    chosen = port or profile.server.port or free_port(host)
    secrets = _secrets(profile)
    python = planned_python(profile, paths)
    reach = _ANY_ADDRESS.get(host, host)
    return LaunchPlan(
        profile=profile,
        run_dir=run_dir,
        python=python,
        argv=server_argv(profile, python=python, port=chosen, secrets_file=_secrets_file(run_dir) if secrets else None),
        env_added=environment.added(profile, run_dir=run_dir, run_marker=run_marker, inherited=inherited),
        env_removed=environment.removed(profile),
        host=host,
        port=chosen,
        url=f"http://[{reach}]:{chosen}" if ":" in reach else f"http://{reach}:{chosen}",
        boot_mode=profile.boot_mode,
        modes=profile.mode_list,
        secrets=secrets,
    )


def prepare(plan: LaunchPlan, environ: Mapping[str, str] | None = None) -> None:
    """Fill the run folder: overlay, an empty metrics folder, an empty status folder, the keys' file (mode 0600).

    The metrics folder must be fresh: SGLang sums whatever counters an earlier run left there.
    Raises OSError, and Refused when a key's variable is not set in `environ`.
    """
    environ = os.environ if environ is None else environ
    values = {secret.option: secret_value(secret, environ) for secret in plan.secrets}
    plan.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    overlay.write(plan.overlay_dir)
    for folder in (plan.metrics_dir, plan.status_dir):
        folder.mkdir(mode=0o700, exist_ok=True)
        for leftover in folder.iterdir():
            leftover.unlink()
    if values:
        plan.secrets_file.unlink(missing_ok=True)
        handle = os.open(plan.secrets_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(values, file)


def secret_value(secret: Secret, environ: Mapping[str, str]) -> str:
    """The key's value. Raises Refused when its variable is unset, empty or unusable as an argument."""
    value = environ.get(secret.variable, "")
    field = f"server.{secret.option.replace('-', '_')}_env"
    if not value:
        raise Refused(
            f"{field}: the environment variable {secret.variable} is not set",
            remedy="Export it where the daemon is started (`specctl down`, then start again), or clear the key",
        )
    if value.startswith("-") or not value.isprintable():
        raise Refused(
            f"{field}: the key in {secret.variable} starts with a dash or has control characters",
            remedy="Choose a key of letters and digits",
        )
    return value


def free_port(host: str) -> int:
    """A port that nothing listens on now. Someone may take it before the engine does; preflight looks again."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
            return port
    except OSError as error:
        raise Refused(
            f"server.host: cannot listen on {host!r}: {error.strerror or error}",
            remedy="Use 127.0.0.1, 0.0.0.0 or an address of this machine",
        ) from error


def _secrets(profile: Profile) -> tuple[Secret, ...]:
    pairs = (("api-key", profile.server.api_key_env), ("admin-api-key", profile.server.admin_api_key_env))
    return tuple(Secret(option=option, variable=variable) for option, variable in pairs if variable)


def _secrets_file(run_dir: Path) -> Path:
    # SGLang insists on the suffix; JSON is YAML.
    return run_dir / "secrets.yaml"
