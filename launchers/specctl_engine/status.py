"""What this process says of the patch: one small file a process, and one log line.

SGLang swallows whatever a plugin raises, so the console must be able to read for itself whether the patch is in.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from specctl_engine import PATCH_VERSION
from specctl_engine.signatures import sglang_version

logger = logging.getLogger("specctl_engine")


def _write(**fields: Any) -> None:
    folder = os.environ.get("SPECCTL_STATUS_DIR")
    if not folder:
        return
    record = {"patch": PATCH_VERSION, "sglang": sglang_version(), "pid": os.getpid(), "tp_rank": None, "dp_rank": None}
    path = Path(folder) / f"patch-{os.getpid()}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record | fields))
        temporary.replace(path)
    except OSError as error:
        # The server must serve even when the console's folder is gone or full.
        logger.warning("specctl: cannot write %s: %s", path, error)


def loaded() -> None:
    """The hooks are registered in this process; whether it drafts at all is not known yet."""
    _write(status="loaded", reason=None)


def active(tp_rank: int, dp_rank: int) -> None:
    """This process holds a worker whose mode can be flipped."""
    _write(status="active", reason=None, tp_rank=tp_rank, dp_rank=dp_rank)
    logger.info("specctl: patch %s active, tp rank %d, dp rank %d", PATCH_VERSION, tp_rank, dp_rank)


def refuse(reason: str) -> None:
    """The patch stays out of this process; SGLang runs as it would without it."""
    _write(status="refused", reason=reason)
    logger.warning("specctl: patch refused: %s", reason)
