"""Stand-in for triton: SGLang decorates kernels when it is imported, and launches none on CPU."""

from importlib import import_module
from typing import NoReturn

from specctl_engine.cpu import standin

# Torch compares it, and takes a low one for a triton that it has to work around.
__version__ = "3.9.0"

__getattr__ = standin.adopt(__name__, standin.decorate(__name__))


def cdiv(a: int, b: int) -> int:
    """Quotient, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Smallest power of two that is not below n; 0 for 0."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


class _NoDriver:
    @property
    def active(self) -> NoReturn:
        """Raise what triton raises without a device: SGLang asks for the device's kind, and takes this for a CPU."""
        raise RuntimeError("0 active drivers: this CPU engine has no triton")


vars(import_module("triton.runtime"))["driver"] = _NoDriver()
