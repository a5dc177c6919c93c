"""Checks before every launch. They start no server, write nothing and raise nothing: each one is a CheckResult."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from specctl.config.profile import Engine
from specctl.core.errors import Refused
from specctl_launch import environment, rules
from specctl_launch.argv import ALWAYS, OWNED, attention_backend, flags_of, graph_max_bs, means
from specctl_launch.checks import CheckResult, CheckStatus, fail, first_failure, ok, warn
from specctl_launch.engines import engine_problem
from specctl_launch.model_fit import draft_checks, read_config, target_check
from specctl_launch.models import model_folder
from specctl_launch.plan import LaunchPlan, secret_value
from specctl_launch.probe import free_bytes, port_problem, versions

__all__ = ["Check", "CheckResult", "CheckStatus", "first_failure", "run_preflight"]

SGLANG_FLOOR = (0, 5, 22)
MIN_FREE_BYTES = 200_000_000
_MB = 1_000_000

Check = Callable[[LaunchPlan, Mapping[str, str]], Iterator[CheckResult]]
"""A check gets the plan and the environment that the engine inherits."""


def run_preflight(
    plan: LaunchPlan, environ: Mapping[str, str] | None = None, *, extra: Sequence[Check] = ()
) -> list[CheckResult]:
    """Every check's results, in a fixed order. extra: further checks, for example of GPU memory, run last."""
    inherited = os.environ if environ is None else environ
    return [result for check in (*CHECKS, *extra) for result in check(plan, inherited)]


def check_arguments(plan: LaunchPlan, _environ: Mapping[str, str]) -> Iterator[CheckResult]:
    clean = True
    for token, _value in flags_of(plan.profile.server.extra_args):
        key = next((OWNED[flag] for flag in OWNED if means(token, flag)), None)
        if key is None or token in ALWAYS:
            continue
        clean = False
        yield fail("arguments", f"server.extra_args: {token} is set by the profile", f"Use {key}", invalid=True)
    if clean:
        yield ok("arguments", f"{len(plan.profile.server.extra_args)} extra")


def check_environment(plan: LaunchPlan, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    wrong = [name for name in plan.profile.server.env if environment.reserved(name)]
    for name in wrong:
        yield fail("environment", f"server.env: {name} is set by specctl", "Leave it out", invalid=True)
    for secret in plan.secrets:
        try:
            secret_value(secret, environ)
        except Refused as error:
            wrong.append(secret.variable)
            yield fail("environment", error.message, error.remedy)
    if not wrong:
        yield ok("environment", f"{len(plan.env_added)} variables set, {len(plan.env_removed)} removed")


def check_combinations(plan: LaunchPlan, _environ: Mapping[str, str]) -> Iterator[CheckResult]:
    broken = rules.broken_rules(plan.argv, plan.boot_mode, attention_backend(plan.profile))
    for one in broken:
        rule = one.rule
        make = warn if rule.warns else fail
        yield make("combinations", f"{one.argument}: {rule.reason} (sglang {rule.upstream})", rule.remedy)
    if not broken:
        yield ok("combinations", f"{len(rules.RULES)} rules hold")


def check_models(plan: LaunchPlan, _environ: Mapping[str, str]) -> Iterator[CheckResult]:
    model, server = plan.profile.model, plan.profile.server
    target_folder, draft_folder = model_folder(model.target, "target"), model_folder(model.draft, "draft")
    target, draft = read_config(target_folder, "target"), read_config(draft_folder, "draft")
    if isinstance(target, CheckResult):
        yield target
    else:
        yield target_check(target, target_folder, kind=plan.profile.engine.kind, tp=server.tp)
    if isinstance(draft, CheckResult):
        yield draft
    elif not isinstance(target, CheckResult):
        yield from draft_checks(target, draft, draft_folder)


def check_engine(plan: LaunchPlan, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    engine = plan.profile.engine
    if problem := engine_problem(plan.profile, plan.python):
        yield fail("engine", problem.message, problem.remedy)
        return
    found = versions(plan.python, plan.environment(environ))
    if isinstance(found, str):
        yield fail("engine", found, _engine_remedy(engine))
    elif found.sglang is None or found.torch is None:
        missing = "SGLang" if found.sglang is None else "torch"
        yield fail("engine", f"{missing} is not installed for {plan.python}", _engine_remedy(engine))
    elif _release(found.sglang) < SGLANG_FLOOR:
        floor = ".".join(map(str, SGLANG_FLOOR))
        yield fail("engine", f"SGLang {found.sglang} cannot flip, {floor} is the oldest that can", "Upgrade SGLang")
    elif _public(found.sglang) != engine.sglang:
        yield fail(
            "engine",
            f"SGLang {found.sglang} is installed for {plan.python}, engine.sglang wants {engine.sglang}",
            f'Set engine.sglang to "{found.sglang}", or name another interpreter',
        )
    else:
        yield ok("engine", f"SGLang {found.sglang}, torch {found.torch}, Python {found.python} at {plan.python}")


def check_address(plan: LaunchPlan, _environ: Mapping[str, str]) -> Iterator[CheckResult]:
    server = plan.profile.server
    if problem := port_problem(plan.host, plan.port):
        yield fail("port", f"server.port: {problem}", "Stop it, or set server.port to another port or to 0")
    else:
        yield ok("port", f"{plan.host}:{plan.port} is free")
    if not _is_loopback(plan.host) and not (server.api_key_env and server.admin_api_key_env):
        yield warn(
            "address",
            f"server.host: {plan.host} is reachable from other machines, and without server.api_key_env and "
            "server.admin_api_key_env anyone may use and flip the server",
            "Set both, or listen on 127.0.0.1",
        )


def check_disk(plan: LaunchPlan, _environ: Mapping[str, str]) -> Iterator[CheckResult]:
    free, logs = free_bytes(plan.run_dir), plan.profile.logs
    wanted = logs.max_mb * (logs.keep_files + 1) * _MB
    text = f"{free // _MB} MB free at {_existing(plan.run_dir)}"
    if free < MIN_FREE_BYTES:
        yield fail("disk", f"{text}, at least {MIN_FREE_BYTES // _MB} MB are needed", "Free some space")
    elif free < wanted:
        yield warn("disk", f"{text}, the logs may take {wanted // _MB} MB", "Lower logs.max_mb or logs.keep_files")
    else:
        yield ok("disk", text)


def check_graphs(plan: LaunchPlan, _environ: Mapping[str, str]) -> Iterator[CheckResult]:
    server = plan.profile.server
    if plan.profile.engine.kind == "cuda" and server.max_running_requests > graph_max_bs(plan.profile):
        yield warn(
            "cuda graphs",
            f"server.cuda_graph_max_bs {graph_max_bs(plan.profile)} is below server.max_running_requests "
            f"{server.max_running_requests}: larger batches decode without a graph, much slower (sglang#33483)",
            "Raise server.cuda_graph_max_bs, or lower server.max_running_requests",
        )


CHECKS: tuple[Check, ...] = (
    check_arguments,
    check_environment,
    check_models,
    check_combinations,
    check_engine,
    check_address,
    check_disk,
    check_graphs,
)


def _engine_remedy(engine: Engine) -> str:
    if engine.kind == "cpu" and not engine.python:
        return "Run `specctl engine install --cpu`"
    return "Set engine.python to the interpreter of an environment that has SGLang"


def _public(version: str) -> str:
    """Without the local part of a version: "0.5.23+cu130" is 0.5.23."""
    return version.partition("+")[0]


def _release(version: str) -> tuple[int, ...]:
    """The numbers to compare; a pre-release is short of its last one, so below its release."""
    return tuple(int(part) for part in _public(version).split(".")[:3] if part.isdecimal())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())
