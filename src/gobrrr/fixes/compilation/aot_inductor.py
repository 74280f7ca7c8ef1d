"""Export with AOTInductor: the forward pass as one library without Python."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.compilation.compile import Mode, cannot_compile, consider_mode
from gobrrr.fixes.compilation.compiled_calls import Left
from gobrrr.fixes.fix import CODE, FIRST_STEP, MEMORY, NUMERICS, Considered, Effect, Fix, RuledOut
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.fixes.spread import COMPILERS
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload

# No guards and no Python: a library call keeps its kernel's own cost.
_AS_A_MODE = Mode(
    "aot_inductor", "AOTInductor", {}, "", left=Left(guards=False, python=False), recurrent=True
)
# What Inductor's kernels assume of the addresses of inputs (torch/_inductor/utils.py, ALIGNMENT).
_ALIGNMENT_BYTES = 16


def _consider(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("an exported program cannot train")
    if facts.is_script or not facts.modules:
        return RuledOut("it needs the module and its inputs: give (module, inputs)")
    return cannot_compile(facts) or consider_mode(_AS_A_MODE, facts)


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    import torch

    program = as_program(work)
    model = program.model
    if not is_module(model):
        raise InputError("AOTInductor exports modules")
    args, kwargs = (), {}
    if isinstance(program.inputs, Mapping):
        kwargs = dict(program.inputs)
    else:
        args = (
            tuple(program.inputs)
            if isinstance(program.inputs, (tuple, list))
            else (program.inputs,)
        )
    from torch._inductor import config

    metadata = dict(config.aot_inductor.metadata)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        exported = torch.export.export(model, args, kwargs)
        _refuse_changed_buffers(model, exported)
        package = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(Path(folder) / "model.pt2")
        )
        loaded = torch._inductor.aoti_load_package(package)
    changed("aot_inductor")
    # The compiler leaves its notes on the program there.
    config.aot_inductor.metadata = metadata
    yield replace(program, model=_exported(model, loaded, args, kwargs))


def _refuse_changed_buffers(model: Any, exported: Any) -> None:
    if not any(part.training for part in model.modules()):
        return
    if exported.run_decompositions({}).graph_signature.buffers_to_mutate:
        raise InputError(
            "in training mode the model updates its buffers, and the exported program would update "
            "copies of them: call model.eval()"
        )


def _exported(model: Any, loaded: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The model with its library in it, which computes what it was exported for.

    The library checks nothing that it is given: another shape is read past its end. It has copies
    of the weights: once those are changed, the model itself is called.
    """
    import torch

    signature = inspect.signature(model.forward)
    by_name = bool(kwargs)
    others = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]

    def as_exported(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # The package takes its arguments as they were exported; a caller may give them otherwise.
        given = signature.bind(*args, **kwargs)
        if not by_name:
            return given.args, given.kwargs
        named = dict(given.arguments)
        for name in others:
            named |= named.pop(name, {})
        return (), named

    example = _layout(as_exported(*args, **kwargs), {})
    parts = tuple(model.modules())
    modes = [part.training for part in parts]
    # Copied into the library. Those made in inference mode count no changes.
    weights = [one for one in (*model.parameters(), *model.buffers()) if not one.is_inference()]
    versions = [one._version for one in weights]

    class Exported(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.training = model.training

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            given = as_exported(*args, **kwargs)
            if (
                [part.training for part in parts] != modes
                or [one._version for one in weights] != versions
                or _layout(given, {}) != example
            ):
                return self.model(*args, **kwargs)
            return loaded(*given[0], **given[1])

    return Exported()


def _layout(value: Any, seen: dict[int, int]) -> Any:
    """What compiled code takes for granted of its arguments: equal for those that it can take.

    ``seen`` numbers the tensors: one that is given twice is one input of what was exported.
    """
    import torch

    kind = type(value)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_nested:
            return object()
        aligned = value.data_ptr() % _ALIGNMENT_BYTES == 0
        which = seen.setdefault(id(value), len(seen))
        return kind, value.shape, value.stride(), value.dtype, value.device, aligned, which
    # By hand where that will do: it is paid for in each call.
    if kind is tuple or kind is list:
        return kind, [_layout(item, seen) for item in value]
    if kind is dict:
        return kind, [(key, _layout(item, seen)) for key, item in value.items()]
    leaves, structure = torch.utils._pytree.tree_flatten(value)
    if structure.is_leaf():
        # Exported as a constant.
        return kind, value
    return structure, [_layout(leaf, seen) for leaf in leaves]


AOT_INDUCTOR = Fix(
    name="aot_inductor",
    title="Export with AOTInductor",
    leaves=("overhead.python", "overhead.dispatch", "memory.device.below", "memory.page_faults"),
    may_change=(NUMERICS, MEMORY, FIRST_STEP),
    consider=_consider,
    snippet=(
        "program = torch.export.export(model, (example,))\n"
        "path = torch._inductor.aoti_compile_and_package(program)\n"
        "model = torch._inductor.aoti_load_package(path)"
    ),
    apply=_apply,
    changes_made=changes_of("aot_inductor"),
    effect=Effect(fuses=True),
    claims=(CODE,),
    judged_with=COMPILERS,
    variant_of="compile",
)
