"""The five hook points, on one page.

Each is a function that SGLang's hook registry calls around an original; none runs when the patch refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specctl_engine import live

_INTERNAL_STATE = "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController"
_RESULTS = "sglang.srt.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"
CREATE_WORKER = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"
SET_STATE = f"{_INTERNAL_STATE}.set_internal_state"
ADD_SPECULATIVE = f"{_INTERNAL_STATE}._add_speculative"
OWNED_KV = "sglang.srt.managers.schedule_batch.Req.owned_kv_len"
RESOLVE_TOKENS = f"{_RESULTS}._resolve_spec_v2_tokens"


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(CREATE_WORKER, _create_worker, HookType.AFTER)
    HookRegistry.register(SET_STATE, _set_internal_state, HookType.AROUND)
    HookRegistry.register(ADD_SPECULATIVE, _add_speculative, HookType.AFTER)
    HookRegistry.register(RESOLVE_TOKENS, _resolve_tokens, HookType.AFTER)
    HookRegistry.register(OWNED_KV, _owned_kv_len, HookType.AFTER)


def _create_worker(worker_class: Any, *args: Any, **kwargs: Any) -> Any:
    """Our subclass in place of EAGLEWorkerV2, or None = leave what SGLang chose."""
    from specctl_engine import status
    from specctl_engine.refusals import worker_problem

    try:
        why = worker_problem(worker_class)
        if why is None:
            from specctl_engine.worker import FlipWorker

            return FlipWorker
    except Exception as error:  # an SGLang we do not know must serve unpatched, whatever it lacks
        why = f"{type(error).__name__}: {error}"
    status.refuse(why)
    return None


def _set_internal_state(original: Callable[..., Any], controller: Any, request: Any) -> Any:
    """A command is seen here whole, before any of its keys acts, so that it is taken or refused whole."""
    from specctl_engine.control import is_command

    worker = _flip_worker(controller.scheduler.draft_worker)
    if worker is None or not is_command(request.server_args):
        return original(controller, request)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    return SetInternalStateReqOutput(updated=worker.command(request.server_args))


def _add_speculative(_result: Any, controller: Any, state: dict[str, Any]) -> None:
    worker = _flip_worker(controller.scheduler.draft_worker)
    if worker is not None:
        state["specctl"] = worker.report()


def _resolve_tokens(accepted: Sequence[Sequence[int]], processor: Any, result: Any, batch: Any) -> None:
    worker = _flip_worker(processor.model_worker)
    if worker is not None:
        worker.count(result, accepted, batch)


def _owned_kv_len(owned: int, req: Any) -> int:
    """A request's own answer, less what the prefix cache must not keep of it; SGLang frees the rest."""
    return owned if live.worker is None else live.worker.reusable_kv_len(req, owned)


def _flip_worker(worker: Any) -> Any:
    return worker if getattr(worker, "is_specctl_worker", False) else None
