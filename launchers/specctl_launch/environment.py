"""What a launch adds to and removes from the environment that the engine inherits."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from specctl.config.profile import Profile
from specctl_launch import overlay

PLUGIN = "specctl"

REMOVED = (
    "PYTHONHOME",  # would point the engine's interpreter at another standard library
    "PYTHONDONTWRITEBYTECODE",  # caches make the second start much faster
    "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND",  # ruins acceptance after coming back from off
)
"""Variables that the engine must not inherit."""

RESERVED = (
    "PROMETHEUS_MULTIPROC_DIR",
    "PYTHONHOME",
    "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND",
    "SGLANG_USE_CPU_ENGINE",
)
"""Variables that `server.env` may not set, beside everything that starts with SPECCTL_."""

_CPU = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # the CPU engine has no Triton compiler
    "OMP_NUM_THREADS": "1",  # more threads on few cores stall for tens of seconds
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
}
_COREDUMPS = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP"
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def added(profile: Profile, *, run_dir: Path, run_marker: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables to set. `run_marker` goes into every descendant: `<boot id>:<daemon uid>:<run>`."""
    cpu = profile.engine.kind == "cpu"
    own = dict(profile.server.env)
    env = {"PYTHONUNBUFFERED": "1", **(_cpu(profile) if cpu else {})}
    env |= _direct(inherited)
    if cpu or own.get(_COREDUMPS, inherited.get(_COREDUMPS)) != "1":
        # After the death of one process SGLang waits a minute for core dumps that nobody has switched on.
        env["SGLANG_CUDA_COREDUMP_BEFORE_CRASH"] = "0"
    env |= own
    env |= {
        "PYTHONPATH": _python_path(run_dir / "overlay", cpu=cpu, own=own.get("PYTHONPATH", "")),
        "PROMETHEUS_MULTIPROC_DIR": str(run_dir / "metrics"),
        "SPECCTL_MODES": json.dumps([asdict(mode) for mode in profile.mode_list], separators=(",", ":")),
        "SPECCTL_RUN": run_marker,
        "SPECCTL_STATUS_DIR": str(run_dir / "status"),
    }
    if cpu:
        env["SPECCTL_CPU"] = "1"
        if profile.server.overlap_schedule:
            env["SPECCTL_CPU_OVERLAP"] = "1"
    if allowed := own.get("SGLANG_PLUGINS", inherited.get("SGLANG_PLUGINS", "")):
        names = [name.strip() for name in allowed.split(",")]
        env["SGLANG_PLUGINS"] = allowed if PLUGIN in names else f"{allowed},{PLUGIN}"
    return env


def removed(profile: Profile) -> tuple[str, ...]:
    """Variables to drop: harmful ones, leftovers of another run, and the keys, which go by a private file."""
    keys = (profile.server.api_key_env, profile.server.admin_api_key_env)
    return (*REMOVED, "SPECCTL_CPU", "SPECCTL_CPU_OVERLAP", *(key for key in keys if key))


def reserved(name: str) -> bool:
    return name.startswith("SPECCTL_") or name in RESERVED


def _cpu(profile: Profile) -> dict[str, str]:
    env = dict(_CPU)
    ranks = profile.server.tp * profile.server.dp
    if ranks > 1:
        # SGLang wants a NUMA node per rank unless each rank's cores are named.
        cores = sorted(os.sched_getaffinity(0))
        env["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(cores[rank % len(cores)]) for rank in range(ranks))
    return env


def _direct(inherited: Mapping[str, str]) -> dict[str, str]:
    """SGLang warms itself up over HTTP on its own address; a proxy for all traffic would swallow that."""
    if not any(inherited.get(name) for name in _PROXIES):
        return {}
    others = inherited.get("no_proxy") or inherited.get("NO_PROXY") or ""
    value = ",".join([*filter(None, [others]), "127.0.0.1", "localhost"])
    return {"no_proxy": value, "NO_PROXY": value}


def _python_path(folder: Path, *, cpu: bool, own: str) -> str:
    parts = [str(folder)]
    if cpu:
        parts.append(str(overlay.cpu_site(folder)))
    return os.pathsep.join([*parts, own] if own else parts)
