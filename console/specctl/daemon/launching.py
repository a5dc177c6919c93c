"""What the supervisor needs to know of a launch, and the thin adapter that gets it from `specctl_launch`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from specctl.config.load import load_profile
from specctl.config.paths import Paths
from specctl.config.profile import Profile
from specctl.core.api import StartRequest
from specctl.core.modes import Mode
from specctl.daemon.restart import RestartMode, RestartPolicy
from specctl_launch.checks import CheckStatus
from specctl_launch.plan import LaunchPlan, make_plan, prepare
from specctl_launch.preflight import run_preflight


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How one run is supervised. Written to run.json, so that a restarted daemon supervises it alike; no secrets.

    Times in seconds, sizes in bytes. modes: in wire order (a mode's number is its index); () = no engine patch
    is expected. *_key_env: names of environment variables.
    """

    profile: str
    url: str
    port: int
    model: str | None = None
    draft: str | None = None
    modes: tuple[Mode, ...] = ()
    max_running_requests: int | None = None
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    ready_timeout_s: float = 900.0
    drain_s: float = 30.0
    stop_timeout_s: float = 30.0
    wedged_after_s: float = 20.0
    flip_timeout_s: float = 10.0
    log_max_bytes: int = 64 << 20
    log_keep_files: int = 5
    keep_runs: int = 20
    api_key_env: str = ""
    admin_key_env: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One start: what to execute, where it writes, how to supervise it. `plan`: the launcher's own object."""

    settings: RunSettings
    argv: tuple[str, ...]
    env: Mapping[str, str]
    run_dir: Path
    cwd: Path | None = None
    plan: LaunchPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The outcome of one preflight check."""

    name: str
    ok: bool
    message: str = ""
    remedy: str | None = None


class Launcher(Protocol):
    """Makes launches. `plan` raises SpecctlError for a bad request; `check` and `prepare` run in a thread."""

    def plan(self, request: StartRequest, run_dir: Path, marker: str, port: int | None) -> Launch: ...

    def check(self, launch: Launch) -> list[Check]: ...

    def prepare(self, launch: Launch) -> None: ...


class ProfileLauncher:
    """Profiles and launch plans of this machine."""

    def __init__(self, where: Paths) -> None:
        self._where = where

    def plan(self, request: StartRequest, run_dir: Path, marker: str, port: int | None) -> Launch:
        profile = load_profile(request.profile, request.overrides, self._where)
        plan = make_plan(profile, self._where, run_dir=run_dir, run_marker=marker, port=port)
        return Launch(
            settings=_settings(profile, plan),
            argv=plan.argv,
            env=plan.environment(os.environ),
            run_dir=run_dir,
            plan=plan,
        )

    def check(self, launch: Launch) -> list[Check]:
        assert launch.plan is not None
        return [
            Check(name=r.name, ok=r.status is not CheckStatus.FAIL, message=r.message, remedy=r.remedy)
            for r in run_preflight(launch.plan)
        ]

    def prepare(self, launch: Launch) -> None:
        assert launch.plan is not None
        prepare(launch.plan)


def _settings(profile: Profile, plan: LaunchPlan) -> RunSettings:
    supervision, server = profile.supervision, profile.server
    return RunSettings(
        profile=profile.name,
        url=plan.url,
        port=plan.port,
        model=profile.model.target,
        draft=profile.model.draft,
        modes=plan.modes,
        max_running_requests=server.max_running_requests,
        restart=RestartPolicy(mode=RestartMode(supervision.restart), max_restarts=supervision.max_restarts),
        ready_timeout_s=supervision.ready_timeout_s,
        drain_s=supervision.drain_s,
        stop_timeout_s=supervision.stop_timeout_s,
        wedged_after_s=supervision.wedged_after_s,
        log_max_bytes=profile.logs.max_mb << 20,
        log_keep_files=profile.logs.keep_files,
        keep_runs=profile.logs.keep_runs,
        api_key_env=server.api_key_env,
        admin_key_env=server.admin_api_key_env,
    )
