"""The CPU engine: what SGLang needs to serve on a machine without a GPU.

SGLang's CPU platform takes about a dozen operators from the compiled package `sgl_kernel`, which has no wheel for this
use, and imports `triton` and `torchvision` although it launches nothing of them there. The folder `site/` holds
top-level packages of those names and goes on the engine's PYTHONPATH beside this package; the operators are in

* `kv`: slots of the KV cache (which request owns which, copies between them)
* `spec`: tokens and metadata of a speculative round
* `tree`: draft trees, their masks and their greedy verification
* `attention`: attention over the paged KV cache, for decode and for extend (prefill, verify, draft extend)

The engine's environment: `SGLANG_USE_CPU_ENGINE=1`; `TORCHDYNAMO_DISABLE=1`, because inductor takes the stand-in for a
triton that works; `OMP_NUM_THREADS=1`, because a second thread waits for a core longer than it saves on small machines.

Importing this package imports neither torch nor sglang.
"""

from __future__ import annotations

from pathlib import Path

SITE = Path(__file__).parent / "site"


def activate() -> None:
    """Tell SGLang, in this process, to serve with these operators. Safe to call twice.

    Raises:
        ImportError: this SGLang has no platform overrides (they came with 0.5.20).
    """
    from specctl_engine.cpu import activation

    activation.activate()
