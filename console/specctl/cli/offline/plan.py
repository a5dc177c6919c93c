"""`specctl plan`: what a start would do, printed; nothing is started or written."""

from __future__ import annotations

from specctl.cli.connect import locate, parse_overrides
from specctl.cli.output import data, data_json
from specctl.config.load import load_profile
from specctl.core.errors import UsageError
from specctl.core.exitcodes import ExitCode
from specctl_launch.checks import first_failure
from specctl_launch.plan import make_plan
from specctl_launch.preflight import run_preflight
from specctl_launch.render import plan_json, render_plan

LAUNCHERS = ("local",)


def plan(*, profile: str, on: str, overrides: list[str], json: bool) -> int:
    """Print command line, environment and checks. Raises the first failed check's error after printing."""
    if on not in LAUNCHERS:
        raise UsageError(f"--on {on!r} is not a launcher", remedy=f"Known: {', '.join(LAUNCHERS)}")
    where = locate(None)
    loaded = load_profile(profile, parse_overrides(overrides), where)
    # The run's number is the daemon's to give.
    launch = make_plan(loaded, where, run_dir=where.runs_dir / "N")
    checks = run_preflight(launch)
    if json:
        data_json(plan_json(launch, checks))
    else:
        data(render_plan(launch, checks))
    if (failure := first_failure(checks)) is not None:
        raise failure
    return int(ExitCode.OK)
