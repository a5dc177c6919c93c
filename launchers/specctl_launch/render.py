"""A launch plan as text for people and as JSON for scripts. Both are free of keys: only their variables are named."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from specctl_launch.checks import CheckResult, CheckStatus
from specctl_launch.plan import LaunchPlan

_MARKS = {CheckStatus.OK: "ok  ", CheckStatus.WARN: "warn", CheckStatus.FAIL: "FAIL"}


def render_plan(plan: LaunchPlan, checks: Sequence[CheckResult] = ()) -> str:
    """The plan over several lines: where, environment, command (to be pasted into a shell), then the checks."""
    modes = ", ".join(f"{mode.name} {mode.shape}" for mode in plan.modes)
    lines = [
        f"profile   {plan.profile.name}",
        f"url       {plan.url}",
        f"modes     {modes}; boots in {plan.boot_mode.name}",
        f"run       {plan.run_dir}",
        "",
        "environment",
        *(f"  {name}={shlex.quote(value)}" for name, value in sorted(plan.env_added.items())),
        *(f"  (removed) {name}" for name in sorted(plan.env_removed)),
        *(f"  (key) {secret.variable} -> --{secret.option} by {plan.secrets_file}" for secret in plan.secrets),
        "",
        "command",
        *_command_lines(plan.argv),
    ]
    if checks:
        lines += ["", "checks", *(f"  {line}" for line in render_checks(checks))]
    return "\n".join(lines)


def render_checks(checks: Iterable[CheckResult]) -> list[str]:
    """One line a check, its remedy behind it where something is to be done."""
    return [
        f"{_MARKS[check.status]}  {check.name}: {check.message}" + (f". {check.remedy}" if check.remedy else "")
        for check in checks
    ]


def plan_json(plan: LaunchPlan, checks: Sequence[CheckResult] = ()) -> dict[str, Any]:
    """The plan as JSON-ready values."""
    return {
        "profile": plan.profile.name,
        "url": plan.url,
        "host": plan.host,
        "port": plan.port,
        "run_dir": str(plan.run_dir),
        "python": str(plan.python),
        "argv": list(plan.argv),
        "env_added": dict(plan.env_added),
        "env_removed": list(plan.env_removed),
        "secrets": [asdict(secret) for secret in plan.secrets],
        "boot_mode": plan.boot_mode.name,
        "modes": [asdict(mode) for mode in plan.modes],
        "checks": [{**asdict(check), "status": check.status.value} for check in checks],
    }


def _command_lines(argv: Sequence[str]) -> list[str]:
    """A flag and its value on a line, continued with backslashes."""
    groups: list[list[str]] = [[]]
    for word in argv:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(shlex.quote(word))
    lines = [f"  {'  ' if place else ''}{' '.join(group)}" for place, group in enumerate(groups)]
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]
