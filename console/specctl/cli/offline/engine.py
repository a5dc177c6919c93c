"""`specctl engine install|check`."""

from __future__ import annotations

import time

from specctl.cli.connect import locate
from specctl.cli.numbers import duration
from specctl.cli.output import clean, data, data_json, say
from specctl.core.errors import UsageError
from specctl.core.exitcodes import ExitCode
from specctl_launch.checks import CheckStatus
from specctl_launch.engines import DEFAULT_SGLANG, check
from specctl_launch.install import TORCH_VERSION, InstallProgress, install_cpu
from specctl_launch.render import render_checks

_NEWS_EVERY_S = 5.0


def install(*, cpu: bool, torch_index: str, torch_version: str | None, sglang: str | None, json: bool) -> int:
    """Make or complete the CPU engine's environment."""
    if not cpu:
        raise UsageError(
            "only CPU engines are installed by specctl",
            remedy="Add --cpu, or name an interpreter that has SGLang as engine.python in the profile",
        )
    folder = install_cpu(
        locate(None),
        sglang=sglang or DEFAULT_SGLANG,
        torch_version=torch_version or TORCH_VERSION,
        torch_index=torch_index,
        progress=_Reporter(),
    )
    if json:
        data_json({"folder": str(folder), "python": str(folder / "bin" / "python")})
    else:
        data(str(folder))
    return int(ExitCode.OK)


def check_engines(*, json: bool) -> int:
    """Look at every installed engine. Exit 0 only when at least one is there and none is broken."""
    results = check(locate(None))
    if json:
        data_json(results)
    else:
        for line in render_checks(results):
            data(clean(line))
    states = {result.status for result in results}
    return int(ExitCode.OK if CheckStatus.OK in states and CheckStatus.FAIL not in states else ExitCode.FAILED)


class _Reporter:
    """Tells each step, and pip's news now and then: a log of thousands of lines is no progress."""

    def __init__(self) -> None:
        self._step = ""
        self._told_at = 0.0

    def __call__(self, progress: InstallProgress) -> None:
        now = time.monotonic()
        if progress.name == self._step and now - self._told_at < _NEWS_EVERY_S:
            return
        self._step, self._told_at = progress.name, now
        place = f"{progress.step}/{progress.steps} " if progress.step else ""
        detail = f": {progress.detail[:200]}" if progress.detail else ""
        say(f"{duration(progress.seconds):>6}  {place}{progress.name}{detail}")
