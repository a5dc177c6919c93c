"""`python -m specctl.daemon`: parses, sets up logging, and runs until told to end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import logging.handlers
import os
import sys
from pathlib import Path

from specctl.config.paths import Paths, paths
from specctl.core.errors import SpecctlError


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="specctl.daemon", description="Supervises one SGLang server.")
    parser.add_argument("--read-only", action="store_true", help="refuse every command")
    parser.add_argument("--foreground", action="store_true", help="log to stderr instead of daemon.log")
    return parser.parse_args(argv)


def _set_up_logging(file: Path, *, foreground: bool) -> None:
    handler: logging.Handler
    if foreground:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=4 << 20, backupCount=2)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _let_go_of_terminal() -> None:
    """A daemon keeps no terminal or pipe of the command that started it open."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    where: Paths
    try:
        where = paths(os.environ)
        # Everything below costs hundreds of milliseconds to import; a wrong path should not.
        from specctl.daemon.socket import bind

        bound = bind(where)
    except SpecctlError as error:
        print(f"specctld: {error}", file=sys.stderr)  # noqa: T201 - the one line a caller sees
        return int(error.exit_code)
    _set_up_logging(where.daemon_log, foreground=arguments.foreground)
    if not arguments.foreground:
        _let_go_of_terminal()
    from specctl.daemon.app import run_daemon

    try:
        return asyncio.run(run_daemon(where, bound, read_only=arguments.read_only))
    finally:
        bound.close()


if __name__ == "__main__":
    sys.exit(main())
