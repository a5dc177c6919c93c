"""The engine patch: runs inside SGLang and lets its speculation mode be changed while it serves.

SGLang calls `activate` in every process of the server (entry point group `sglang.srt.plugins`). Imports nothing of specctl.
"""

from __future__ import annotations

import os

PATCH_VERSION = "0.1.0"

_activated = False


def activate() -> None:
    """Register the hooks, or refuse: then SGLang runs unpatched and the status file says why. Safe to call twice."""
    global _activated
    if _activated:
        return
    _activated = True
    if os.environ.get("SPECCTL_CPU") == "1":
        from specctl_engine import cpu

        cpu.activate()
    from specctl_engine import hooks, signatures, status

    off = os.environ.get("SPECCTL_ENGINE_DISABLE", "") not in ("", "0")
    why = "switched off by SPECCTL_ENGINE_DISABLE" if off else signatures.hook_problem()
    if why is not None:
        status.refuse(why)
        return
    hooks.register()
    status.loaded()
