"""The import stand-ins, in a fresh interpreter that has none of the real packages in front."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LAUNCHERS = Path(__file__).parents[2] / "launchers"
SITE = LAUNCHERS / "specctl_engine" / "cpu" / "site"


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{SITE}:{LAUNCHERS}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def last_line(code: str) -> str:
    return run(code).stderr.strip().splitlines()[-1]


def test_what_sglang_does_with_triton_at_import_time_works() -> None:
    done = run("""
import triton, triton.language as tl, triton.language.extra.cuda.libdevice
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction, constexpr_function
from triton.tools.tensor_descriptor import TensorDescriptor
from triton.knobs import HookChain
class Mine(HookChain): pass
LOG2 = tl.constexpr(1.44)
@triton.autotune(configs=[triton.Config({'B': 1}, num_warps=4)], key=['n'])
@triton.heuristics({'B': lambda args: 1})
@triton.jit
def kernel(x, n: tl.constexpr): '''Doc.'''
@triton.jit(do_not_specialize=['n'])
def other(x): pass
def typed(x: TensorDescriptor | None) -> tl.tensor: pass
assert kernel.__name__ == 'kernel' and kernel.__doc__ == 'Doc.' and other.__name__ == 'other'
assert not isinstance(3, JITFunction)
assert triton.cdiv(7, 2) == 4 and [triton.next_power_of_2(n) for n in (1, 5, 8)] == [1, 8, 8]
""")
    assert done.returncode == 0, done.stderr


def test_launching_a_kernel_is_one_clear_line() -> None:
    line = last_line("import triton\n@triton.jit\ndef add(x): pass\nadd[(1,)](3)")
    assert line == "NotImplementedError: triton kernel add launched: this CPU engine has no triton"


def test_triton_says_that_there_is_no_driver_as_without_a_device() -> None:
    line = last_line("import triton; triton.runtime.driver.active.get_current_target()")
    assert line.startswith("RuntimeError: 0 active drivers")


def test_using_torchvision_is_one_clear_line() -> None:
    line = last_line("from torchvision.transforms import Compose\nCompose([])")
    assert line == "NotImplementedError: torchvision.transforms.Compose called: this CPU engine has no torchvision"


def test_torchvision_names_can_be_imported_and_compared() -> None:
    done = run("""
import torchvision, torchvision.transforms.v2.functional as tvF
from torchvision.transforms import InterpolationMode, functional
assert InterpolationMode.BICUBIC is not InterpolationMode.NEAREST
{InterpolationMode.BICUBIC: 1}
""")
    assert done.returncode == 0, done.stderr


def test_modules_that_do_not_exist_stay_missing() -> None:
    assert last_line("import triton\nimport triton_kernels.matmul").startswith("ModuleNotFoundError")
    assert run("import triton\ntriton.__path__; triton.__nothing__").returncode == 1


def test_the_package_loads_without_torch_and_sglang() -> None:
    done = run("""
import sys
from specctl_engine import cpu
assert cpu.SITE.is_dir()
assert not {'torch', 'sglang'} & set(sys.modules)
""")
    assert done.returncode == 0, done.stderr
