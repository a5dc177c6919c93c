"""The boundary where every error becomes one line on standard error and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from specctl.cli.output import OutputError, flush, say
from specctl.core.errors import NoDaemon, SpecctlError
from specctl.core.exitcodes import ExitCode


class Terminated(BaseException):
    """SIGTERM came. Not an Exception: only the boundary may catch it."""


def guard(call: Callable[[], int]) -> int:
    """Run `call` and return its exit code; whatever it raises is told in one line."""
    signal.signal(signal.SIGTERM, _terminate)
    _tolerate_encoding()
    try:
        code = call()
        flush()
    except NoDaemon as error:
        return fail(_explained(error))
    except SpecctlError as error:
        return fail(error)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except Terminated:
        return int(ExitCode.TERMINATED)
    except OutputError as error:
        return fail(_unwritable(error))
    except BrokenPipeError:
        # The reader has what it wanted. The interpreter flushes once more at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
    except Exception as error:
        return _unexpected(error)
    return code


def open_missing_streams() -> None:
    """A command whose caller closed its standard streams works all the same, and no socket takes their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _unwritable(error: OutputError) -> SpecctlError:
    # What is still in the buffer would fail once more at the interpreter's end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SpecctlError(f"standard output cannot be written: {error}", remedy="Free space or write elsewhere")


def fail(error: SpecctlError) -> int:
    _line(str(error))
    return int(error.exit_code)


def _explained(error: NoDaemon) -> SpecctlError:
    from specctl.cli.orphans import tell_orphan
    from specctl.config.paths import paths

    try:
        return tell_orphan(error, paths())
    except SpecctlError:
        return error


def _line(text: str) -> None:
    say(f"specctl: {text}")


def _unexpected(error: Exception) -> int:
    import traceback

    what = f"{type(error).__name__}: {error}"
    try:
        path = _report_path()
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="replace")
    except (OSError, SpecctlError):
        _line(f"unexpected error: {what}. Its traceback could not be written; please report it")
    else:
        _line(f"unexpected error: {what}. Please report it with {path}")
    return int(ExitCode.FAILED)


def _report_path() -> Path:
    import time

    from specctl.config.paths import paths

    folder = paths().state_dir
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"traceback-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _tolerate_encoding() -> None:
    """A model's name in a script that the terminal's encoding lacks must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
