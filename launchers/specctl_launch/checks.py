"""The result of one preflight check, and what a failed one becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from specctl.core.errors import InvalidProfile, Refused, SpecctlError


class CheckStatus(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One check. message: what was found; remedy: what to do, where something is to be done.

    invalid: a failure of the profile itself (exit 2), not of this machine or of a combination (exit 4).
    """

    name: str
    status: CheckStatus = CheckStatus.OK
    message: str = ""
    remedy: str | None = None
    invalid: bool = False


def ok(name: str, message: str) -> CheckResult:
    return CheckResult(name=name, message=message)


def warn(name: str, message: str, remedy: str | None = None) -> CheckResult:
    return CheckResult(name=name, status=CheckStatus.WARN, message=message, remedy=remedy)


def fail(name: str, message: str, remedy: str | None = None, *, invalid: bool = False) -> CheckResult:
    return CheckResult(name=name, status=CheckStatus.FAIL, message=message, remedy=remedy, invalid=invalid)


def first_failure(results: Iterable[CheckResult]) -> SpecctlError | None:
    """The error to raise for the first failed check, or None when every check passed or only warned."""
    for result in results:
        if result.status is CheckStatus.FAIL:
            kind = InvalidProfile if result.invalid else Refused
            return kind(f"{result.name}: {result.message}", remedy=result.remedy)
    return None
