"""Runs sglang's own Triton kernels as plain Python, one program after the other, so that they can serve as the
reference.

Only what those kernels use is here: element pointers, masked loads and stores, and a few reductions. Values are torch
tensors, scalars are tensors without dimensions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from specctl_engine.cpu.standin import Kernel

_ids: tuple[int, ...] = ()
_grid: tuple[int, ...] = ()


class Pointer:
    """Address of elements of a contiguous tensor: base plus offsets."""

    def __init__(self, base: torch.Tensor, offset: Any = 0) -> None:
        self.base = base.view(-1)
        self.offset = offset

    def __add__(self, other: Any) -> Pointer:
        return Pointer(self.base, self.offset + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Pointer:
        return Pointer(self.base, self.offset - other)


def _mask(mask: Any, shape: torch.Size) -> torch.Tensor:
    return torch.as_tensor(True if mask is None else mask).bool().expand(shape)


class Language:
    """The part of `triton.language` that the reference kernels use."""

    constexpr = int
    int32, int64, int1 = torch.int32, torch.int64, torch.bool

    @staticmethod
    def program_id(axis: int) -> int:
        return _ids[axis]

    @staticmethod
    def num_programs(axis: int) -> int:
        return _grid[axis]

    @staticmethod
    def load(pointer: Pointer, mask: Any = None, other: Any = 0) -> torch.Tensor:
        offsets = torch.as_tensor(pointer.offset)
        valid = _mask(mask, offsets.shape)
        loaded = pointer.base[torch.where(valid, offsets, 0)]
        return torch.where(valid, loaded, torch.as_tensor(other).to(loaded.dtype))

    @staticmethod
    def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
        offsets = torch.as_tensor(pointer.offset)
        valid = _mask(mask, offsets.shape)
        values = torch.as_tensor(value).to(pointer.base.dtype).expand(offsets.shape)
        pointer.base[offsets[valid]] = values[valid]

    @staticmethod
    def arange(start: int, end: int) -> torch.Tensor:
        return torch.arange(start, end)

    @staticmethod
    def where(condition: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return torch.where(condition, torch.as_tensor(a), torch.as_tensor(b))

    @staticmethod
    def sum(values: torch.Tensor, axis: int | None = None) -> torch.Tensor:
        return values.sum() if axis is None else values.sum(axis)

    @staticmethod
    def max(values: torch.Tensor, axis: int) -> torch.Tensor:
        return values.amax(axis)

    @staticmethod
    def min(values: torch.Tensor, axis: int) -> torch.Tensor:
        return values.amin(axis)

    @staticmethod
    def cast(value: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.as_tensor(value).to(dtype)

    @staticmethod
    def cdiv(a: Any, b: Any) -> Any:
        return -(-a // b)

    @staticmethod
    def debug_barrier() -> None:
        pass


@contextmanager
def _interpreted(function: Callable[..., None]) -> Iterator[None]:
    """Let the function see `Language` as `tl`, and the device functions beside it as plain functions."""
    scope = function.__globals__
    replaced = {name: value for name, value in scope.items() if name == "tl" or isinstance(value, Kernel)}
    scope.update({name: Language if name == "tl" else value.fn for name, value in replaced.items()})
    try:
        yield
    finally:
        scope.update(replaced)


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **kwargs: Any) -> None:
    """Run every program of `kernel` (a decorated Triton function) with tensors as pointers."""
    global _ids, _grid
    assert all(a.is_contiguous() for a in args if isinstance(a, torch.Tensor))
    _grid = grid
    with _interpreted(kernel.fn):
        for ids in itertools.product(*(range(size) for size in grid)):
            _ids = ids
            kernel.fn(*(Pointer(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
