"""Export with AOTInductor: the forward pass as one library without Python."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gobrrr.capture.workload import Workload
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.compilation import Mode, cannot_compile, consider_mode
from gobrrr.fixes.compiled_calls import Left
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import CODE, FIRST_STEP, MEMORY, NUMERICS, Considered, Effect, Fix, RuledOut
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.fixes.spread import COMPILERS
from gobrrr.timeline.errors import InputError

# No guards and no Python: a library call keeps its kernel's own cost.
_AS_A_MODE = Mode(
    "aot_inductor", "AOTInductor", {}, "", left=Left(guards=False, python=False), recurrent=True
)


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
    if not is_module(program.model):
        raise InputError("AOTInductor exports modules")
    args, kwargs = (), {}
    if isinstance(program.inputs, dict):
        kwargs = program.inputs
    else:
        args = (
            tuple(program.inputs)
            if isinstance(program.inputs, (tuple, list))
            else (program.inputs,)
        )
    from torch._inductor import config

    metadata = dict(config.aot_inductor.metadata)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        exported = torch.export.export(program.model.eval(), args, kwargs)
        package = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(Path(folder) / "model.pt2")
        )
        loaded = torch._inductor.aoti_load_package(package)
    changed("aot_inductor")
    # The compiler leaves its notes on the program there.
    config.aot_inductor.metadata = metadata

    by_name = bool(kwargs)
    signature = inspect.signature(program.model.forward)

    def call(*args: Any, **kwargs: Any) -> Any:
        # The package takes its arguments as they were exported; a caller may give them otherwise.
        given = signature.bind(*args, **kwargs)
        return loaded(**given.arguments) if by_name else loaded(*given.args, **given.kwargs)

    yield replace(program, model=call)


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
