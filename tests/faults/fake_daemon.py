"""A whole daemon that launches fakes: `fake_daemon.py JSON`, JSON = {"script": ..., "settings": ..., "read_only": ...}."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.rig import FakeLauncher
from specctl.config.paths import paths
from specctl.core.errors import SpecctlError
from specctl.daemon.app import Daemon
from specctl.daemon.restart import RestartMode, RestartPolicy
from specctl.daemon.socket import bind


async def run(options: dict, where, bound) -> int:
    settings = {"restart": RestartPolicy(mode=RestartMode.NEVER)} | options.get("settings", {})
    launcher = FakeLauncher(script=options.get("script", {}), settings=settings)
    return await Daemon(where, bound, read_only=options.get("read_only", False), launcher=launcher).run()


def main() -> int:
    logging.basicConfig(level=logging.INFO)
    where = paths(os.environ)
    try:
        bound = bind(where)
    except SpecctlError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    try:
        return asyncio.run(run(json.loads(sys.argv[1]), where, bound))
    finally:
        bound.close()


if __name__ == "__main__":
    sys.exit(main())
