"""Where SGLang's idea of the machine and of what CPUs can do is corrected."""

from __future__ import annotations

import os
from typing import Any

OVERLAP_VARIABLE = "SPECCTL_CPU_OVERLAP"

_activated = False


def activate() -> None:
    """Admit the CPU attention backend; with `SPECCTL_CPU_OVERLAP=1` keep overlap scheduling. Safe to call twice."""
    global _activated
    if _activated:
        return
    _activated = True
    _admit_attention_backend()
    if os.environ.get(OVERLAP_VARIABLE) == "1":
        _keep_overlap_schedule()


def _admit_attention_backend() -> None:
    """Let `--attention-backend intel_amx` through: its attention is ours.

    Only the platform fact is overridden. `cpu_has_amx_support()` stays False, so that every layer keeps its native
    PyTorch forward and no weight is repacked for instructions that the machine may not have.
    """
    from sglang.srt.runtime_context import override_platform

    override_platform(has_amx=True).install()


def _keep_overlap_schedule() -> None:
    """Undo what keeps overlap scheduling and speculation apart on CPU: a rule, and one triton kernel."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.arg_groups.speculative_hook._disable_overlap_schedule_for_cpu",
        _leave_overlap_schedule,
        HookType.REPLACE,
    )
    HookRegistry.register(
        "sglang.kernels.ops.speculative.gather_spec_extras.gather_spec_extras",
        gather_spec_extras,
        HookType.REPLACE,
    )


def _leave_overlap_schedule(server_args: Any) -> None:
    """Replace the rule that disables overlap scheduling: leave the arguments as they are."""


def gather_spec_extras(
    indices: Any, topk_p: Any, topk_index: Any, output_tokens: Any, hidden_states: Any | None
) -> tuple[Any, Any, Any, Any | None]:
    """Rows `indices` (int64 [m]) of the relay buffers, copied; `hidden_states` is None where the draft needs none."""
    hidden = None if hidden_states is None else hidden_states.index_select(0, indices)
    return (
        topk_p.index_select(0, indices),
        topk_index.index_select(0, indices),
        output_tokens.index_select(0, indices),
        hidden,
    )
