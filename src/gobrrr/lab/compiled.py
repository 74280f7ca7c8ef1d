"""Fused kernels: by torch.compile, and a C++ loop for what no compiler of graphs writes."""

from __future__ import annotations

import ctypes
import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from types import FunctionType
from typing import Any

from gobrrr.devices.native import NoNativeKernelsError, compile_library, compiler
from gobrrr.lab.experiment import SkipExperimentError
from gobrrr.lab.setting import Setting

Function = Callable[..., Any]


def fuse(
    setting: Setting, function: Function, *, dynamic: bool = False, backend: Any = "inductor"
) -> Function:
    """``torch.compile`` of a function without graph breaks; ``dynamic``: one kernel for all sizes.

    Raises SkipExperimentError where there is nothing to compile with.
    """
    import torch

    problem = compiler_problem(setting)
    if problem:
        raise SkipExperimentError(problem)
    own = _with_own_code(function)
    compiled: Function = torch.compile(own, fullgraph=True, dynamic=dynamic, backend=backend)
    return compiled


def _with_own_code(function: Function) -> Function:
    """The function with a code object of its own.

    Dynamo keeps what it compiled with the code object, and stops after eight of one; functions
    made by one ``def`` share it.
    """
    if not isinstance(function, FunctionType):
        return function
    return FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def compiler_problem(setting: Setting) -> str:
    """Why torch.compile cannot work here; empty if nothing is known to be missing."""
    if setting.is_gpu:
        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs Triton for this device (pip install triton)"
        return ""
    if compiler() is None:
        return "torch.compile needs a C++ compiler on a CPU (install g++)"
    return ""


@dataclass(frozen=True)
class ChainLoops:
    """The loops of ``chains.cpp``, compiled for this CPU.

    Attributes:
        chains: independent chains that a thread keeps in flight.
        granule: the number of elements must be a multiple of this.
    """

    library: Any
    chains: int
    granule: int

    def run(
        self,
        x: Any,
        y: Any,
        repeats: int,
        *,
        factor: float,
        term: float | None,
        many: bool,
        threads: int,
    ) -> None:
        """``y`` = ``x`` after ``repeats`` times ``* factor`` (or ``* factor + term``), float32.

        ``many``: with several independent chains in flight instead of one.
        """
        self.library.lab_run(
            ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()),
            ctypes.c_int64(x.numel()), ctypes.c_int64(repeats), ctypes.c_float(factor),
            ctypes.c_float(term or 0.0), int(term is not None), int(many), threads,
        )  # fmt: skip


def compile_chains() -> ChainLoops:
    """Compiles ``chains.cpp``; takes about a second.

    Raises SkipExperimentError without a compiler, or with what it said.
    """
    found = compiler()
    if found is None:
        raise SkipExperimentError("it needs a C++ compiler (install g++)")
    with tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
        target = Path(folder) / "chains.so"
        with as_file(files("gobrrr.lab") / "chains.cpp") as source:
            try:
                compile_library(found, source, target, ["-fopenmp"])
                library = ctypes.CDLL(str(target))
            except (NoNativeKernelsError, OSError) as error:
                raise SkipExperimentError(f"the loops cannot be compiled: {error}") from error
    library.lab_granule.restype = ctypes.c_int64
    return ChainLoops(library, int(library.lab_chains()), int(library.lab_granule()))
