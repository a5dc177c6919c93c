from __future__ import annotations

import json
import os
import subprocess
import sys

# In a process of its own: hooks cannot be taken back.
CODE = """
import json, torch
from specctl_engine import cpu
cpu.activate(); cpu.activate()
from sglang.srt.plugins.hook_registry import HookRegistry
from sglang.srt.arg_groups import speculative_hook
from sglang.srt.managers import overlap_utils
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import cpu_has_amx_support, is_cpu

rows = torch.tensor([3, 1])
buffers = [torch.rand(5, 4), torch.rand(5, 4), torch.arange(5), torch.rand(5, 8)]

def outcome(run):
    try:
        return run()
    except Exception as error:
        return type(error).__name__

def gathered(*hidden):
    out = overlap_utils.gather_spec_extras(rows, *buffers[:3], *hidden)
    return [b is a if a is None else torch.equal(b, a[rows]) for a, b in zip([*buffers[:3], *hidden], out)]

def facts():
    return {
        "rule": outcome(lambda: speculative_hook._disable_overlap_schedule_for_cpu("untouched")),
        "gathered": outcome(lambda: gathered(buffers[3]) + gathered(None)),
    }

before = facts()
HookRegistry.apply_hooks()
print(json.dumps({
    "cpu": is_cpu(), "platform": get_platform().has_amx, "layers": cpu_has_amx_support(),
    "before": before, "after": facts(),
}))
"""


def test_activation_admits_the_backend_and_keeps_overlap_scheduling() -> None:
    environment = os.environ | {"SPECCTL_CPU_OVERLAP": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["cpu"]
    assert facts["platform"]
    # Layers would repack weights and call compiled operators.
    assert not facts["layers"]
    assert facts["before"]["gathered"] == "NotImplementedError"
    assert facts["before"]["rule"] is not None
    assert facts["after"] == {"rule": None, "gathered": [True] * 8}
