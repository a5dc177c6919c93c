"""Import stand-ins: modules and names that SGLang needs at import time and never uses on a CPU.

A package in `site/` calls `adopt` from its `__init__`. Every submodule of it can then be imported, and every name of
it is a placeholder class: a class because SGLang subclasses such names, annotates with them and asks isinstance of
them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

Call = Callable[[str, tuple[Any, ...]], Any]

_calls: dict[str, Call] = {}


def adopt(package: str, on_call: Call) -> Callable[[str], Any]:
    """Make every submodule of `package` importable, and every name in it a placeholder.

    Args:
        package: name of a top-level package that is being imported.
        on_call: called with a placeholder's full name and the positional arguments when a placeholder is called.

    Returns:
        The package's module-level `__getattr__`.
    """
    _calls[package] = on_call
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # In front: the path-based finder searches the disk for every submodule first, and finds nothing.
        sys.meta_path.insert(0, _Finder())
    return _getattr(package)


def _getattr(module: str) -> Callable[[str], Any]:
    def getattr_(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = Placeholder(name, (), {"__module__": module})
        setattr(sys.modules[module], name, value)
        return value

    return getattr_


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds any submodule of an adopted package and makes it empty."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package not in _calls or not rest:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__getattr__"] = _getattr(module.__name__)


class Placeholder(type):
    """Metaclass of placeholders: attributes are placeholders, a call is decided by the package."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(name, (), {"__module__": f"{cls.__module__}.{cls.__name__}"})

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        name = f"{cls.__module__}.{cls.__name__}"
        return _calls[name.partition(".")[0]](name, args)


class Kernel:
    """A function that a kernel compiler's decorator took; launching it is an error."""

    def __init__(self, function: Any, compiler: str) -> None:
        self.fn = function
        self.compiler = compiler
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = getattr(function, "__doc__", None)

    def __getitem__(self, grid: Any) -> Kernel:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{self.compiler} kernel {self.__name__} launched: this CPU engine has no {self.compiler}"
        )


def decorate(compiler: str) -> Call:
    """Calls of a kernel compiler's names: what is given a function becomes a kernel, all else a placeholder."""

    def call(name: str, args: tuple[Any, ...]) -> Any:
        if len(args) == 1 and isinstance(args[0], (types.FunctionType, Kernel)):
            return args[0] if isinstance(args[0], Kernel) else Kernel(args[0], compiler)
        module, _, last = name.rpartition(".")
        return Placeholder(last, (), {"__module__": module})

    return call


def refuse(name: str, args: tuple[Any, ...]) -> NoReturn:
    """Calls of a library's names: each is an error."""
    raise NotImplementedError(f"{name} called: this CPU engine has no {name.partition('.')[0]}")
