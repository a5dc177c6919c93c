"""The one family of errors that reaches an operator: a message, a remedy, an exit code."""

from __future__ import annotations

from dataclasses import dataclass

from specctl.core.exitcodes import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """An error as the API sends it. `kind` is the class's `kind`; `exit_code` is what a CLI exits with."""

    kind: str
    message: str
    remedy: str | None = None
    exit_code: int = int(ExitCode.FAILED)


class SpecctlError(Exception):
    """Message: one line that names the field, the value and what is wrong. Remedy: what to do next."""

    kind = "failed"
    exit_code = ExitCode.FAILED
    http_status = 500

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def body(self) -> ErrorBody:
        return ErrorBody(kind=self.kind, message=self.message, remedy=self.remedy, exit_code=int(self.exit_code))

    def __str__(self) -> str:
        return f"{self.message}. {self.remedy}" if self.remedy else self.message


class UsageError(SpecctlError):
    kind = "usage"
    exit_code = ExitCode.USAGE
    http_status = 422


class InvalidProfile(UsageError):
    kind = "invalid_profile"


class NoDaemon(SpecctlError):
    kind = "no_daemon"
    exit_code = ExitCode.NO_DAEMON
    http_status = 503


class Refused(SpecctlError):
    kind = "refused"
    exit_code = ExitCode.REFUSED
    http_status = 409


class WaitTimeout(SpecctlError):
    kind = "timeout"
    exit_code = ExitCode.TIMEOUT
    http_status = 504


class ServerFailed(SpecctlError):
    kind = "server_failed"
    exit_code = ExitCode.SERVER_FAILED
    http_status = 502


class NotConfirmed(SpecctlError):
    kind = "not_confirmed"
    exit_code = ExitCode.NOT_CONFIRMED
    http_status = 504


ERRORS: dict[str, type[SpecctlError]] = {
    cls.kind: cls
    for cls in (
        SpecctlError,
        UsageError,
        InvalidProfile,
        NoDaemon,
        Refused,
        WaitTimeout,
        ServerFailed,
        NotConfirmed,
    )
}


def error_from_body(body: ErrorBody) -> SpecctlError:
    """The exception that `body` was made from; an unknown kind becomes a plain SpecctlError."""
    return ERRORS.get(body.kind, SpecctlError)(body.message, remedy=body.remedy)
