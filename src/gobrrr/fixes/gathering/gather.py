"""A diagnosis, and the program it is of, as what fixes may look at."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gobrrr.attribution.analysis import Analysis
from gobrrr.attribution.attributed import Attributed
from gobrrr.attribution.cpu.run import CpuAnalysis
from gobrrr.attribution.device.run import DeviceAnalysis
from gobrrr.devices import identify
from gobrrr.devices.allocator import VARIABLES
from gobrrr.devices.host_costs import dispatch_now_s
from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.compilation.memory_budget import has_setting
from gobrrr.fixes.gathering.record_facts import facts_of_record, ops_of_rows
from gobrrr.fixes.gathering.seen_modules import modules_of_step
from gobrrr.fixes.parametrizations import parametrized
from gobrrr.fixes.programs import Program, is_module
from gobrrr.fixes.scripts import compiles_by_method
from gobrrr.live.steps import StepWatcher
from gobrrr.live.watch.loaders import describe_iterator, describe_loader
from gobrrr.live.watch.optimizer_facts import describe_optimizer, described
from gobrrr.measure.load import usable_processors
from gobrrr.timeline.data import PHASE_NAMES
from gobrrr.timeline.nested import nested_tensors
from gobrrr.timeline.workload import Workload

_DTYPES = ("float64", "float32", "bfloat16", "float16")


def facts_of(
    diagnosis: Diagnosis,
    analysis: Analysis | None,
    *,
    workload: Workload | None = None,
    is_script: bool = False,
    can_restart: bool = False,
    times_dispatch: bool = True,
) -> Facts:
    """Facts of one diagnosed step; with ``analysis`` op by op in order, otherwise from its rows.

    A step on a GPU whose profiled ops are not the recorded ones has its ops by groups that are
    alike, with the shapes that the profiler saw. ``times_dispatch``: run an operator for a moment.
    """
    import torch

    facts = replace(
        facts_of_record(diagnosis, _ops_of(diagnosis, analysis)),
        in_order=isinstance(analysis, CpuAnalysis) or (analysis is not None and analysis.in_order),
        instruction_sets=identify("cpu").isa if diagnosis.device.kind == "cpu" else (),
        dispatch_s=dispatch_now_s(torch, diagnosis.accounted_s) if times_dispatch else None,
        threads=torch.get_num_threads(),
        processors=usable_processors(),
        torch_version=str(torch.__version__),
        has_compiler=has_compiler(diagnosis.device.kind),
        has_memory_budget=has_setting(),
        is_script=is_script,
        can_restart=can_restart,
        environment={n: os.environ[n] for n in VARIABLES if os.environ.get(n)},
    )
    return facts if workload is None else with_program(facts, workload)


def _ops_of(diagnosis: Diagnosis, analysis: Analysis | None) -> tuple[OpFact, ...]:
    if isinstance(analysis, CpuAnalysis):
        return _ops_in_order(analysis)
    if analysis is None:
        return ops_of_rows(diagnosis.ops)
    return _ops_on_device(analysis) if analysis.in_order else _ops_by_groups(analysis.attributed)


def _ops_on_device(analysis: DeviceAnalysis) -> tuple[OpFact, ...]:
    def seconds(ns: float | None) -> float | None:
        return None if ns is None else ns * 1e-9

    return tuple(
        OpFact(
            call=found.op.call, work=found.work, kernel_s=found.kernel_ns * 1e-9,
            fixed_s=found.fixed_ns * 1e-9, host_s=found.host_ns * 1e-9,
            roof_s=seconds(found.roof_ns), below_s=seconds(found.below_ns),
            module=found.op.module, source=found.op.source, phase=PHASE_NAMES[found.op.phase],
            nodes=found.op.nodes, varies=found.op.varies, grows=found.op.grows,
            records=found.op.records,
        )
        for found in analysis.ordered_ops()
    )  # fmt: skip


def _ops_by_groups(step: Attributed) -> tuple[OpFact, ...]:
    facts = []
    for item in step.ops:
        fact = OpFact(
            call=item.op.call, work=item.work, count=item.count, host_s=item.host_ns * 1e-9,
            module=item.op.module, source=item.op.source, phase=PHASE_NAMES[item.op.phase],
        )  # fmt: skip
        facts.append(fact if item.share < 0 else _with_shares(fact, step.shares, item.share))
    return tuple(facts)


def _ops_in_order(analysis: CpuAnalysis) -> tuple[OpFact, ...]:
    shares = analysis.result.attribution.kernels
    row_of = {int(position): i for i, position in enumerate(shares.kernel) if position >= 0}
    host = analysis.result.host_by_op_ns.sum(axis=0)
    facts = []
    for position, op in enumerate(analysis.capture.recorded):
        row = row_of.get(position, -1)
        fact = OpFact(
            call=op.call, work=analysis.works[position], host_s=float(host[position]) * 1e-9,
            module=op.module, source=op.source, phase=PHASE_NAMES[op.phase], nodes=op.nodes,
            varies=op.varies, grows=op.grows, records=op.records,
        )  # fmt: skip
        facts.append(fact if row < 0 else _with_shares(fact, shares, row))
    return tuple(facts)


def _with_shares(fact: OpFact, shares: Any, row: int) -> OpFact:
    roof_s, below_s = shares.roof_ns[row] * 1e-9, shares.below_ns[row] * 1e-9
    faults_s = shares.page_faults_ns[row] * 1e-9
    known = not np.isnan(shares.full_roof_ns[row])
    return replace(
        fact,
        kernel_s=float(roof_s + below_s + faults_s),
        fixed_s=float(shares.fixed_ns[row]) * 1e-9,
        roof_s=float(roof_s) if known else None,
        below_s=float(below_s) if known else None,
        page_faults_s=float(faults_s),
    )


def has_compiler(device_kind: str) -> bool:
    """Whether ``torch.compile`` has what it needs to build code for this kind of device."""
    if sys.version_info >= (3, 14) and not _dynamo_supported():
        return False
    if device_kind not in ("cpu", ""):
        import importlib.util

        return importlib.util.find_spec("triton") is not None
    wanted = os.environ.get("CXX")
    names = (wanted,) if wanted else ("g++", "clang++", "cl")
    if platform.system() == "Darwin" and not wanted:
        names = ("clang++",)
    return any(shutil.which(name) is not None for name in names)


def _dynamo_supported() -> bool:
    import torch

    check = getattr(torch._dynamo.eval_frame, "check_if_dynamo_supported", None)
    if check is None:
        return True
    try:
        check()
    except RuntimeError:
        return False
    return True


def with_program(facts: Facts, workload: Workload) -> Facts:
    """Facts with what the workload's own objects say."""
    given = workload.model if is_module(workload.model) else None
    optimizer = workload.optimizer
    facts = with_unused_gradients(
        facts,
        list(given.parameters()) if given is not None else [],
        () if optimizer is None else (optimizer,),
    )
    trains = facts.trains or workload.trains
    facts = with_modules(facts, modules_of_step(facts, workload), trains)
    return replace(
        facts,
        trains=trains,
        in_no_grad=not workload.trains and not getattr(workload, "plain_call", False),
        modules=module_kinds(given),
        optimizers=() if optimizer is None else (describe_optimizer(optimizer),),
        batch_size=None if isinstance(workload, Program) and workload.plain_call
        else workload.batch_size(),
        input_channels_last=_channels_last(workload.inputs),
        workload=workload,
    )  # fmt: skip


def with_modules(facts: Facts, modules: Sequence[Any], trains: bool) -> Facts:
    """Facts with what the modules that a step uses say."""
    parameters = [p for module in modules for p in module.parameters()]
    fixed = [] if trains else map(fixed_storages, modules)
    return replace(
        facts,
        parameters=len(parameters) if modules else None,
        parameter_dtypes=dtypes_of(parameters),
        buffer_dtypes=dtypes_of(b for module in modules for b in module.buffers()),
        fixed_storages=frozenset().union(*fixed),
        weight_storages=_storages_of(parameters),
        parametrized=sum(map(parametrized, modules)),
    )


def fixed_storages(module: Any) -> frozenset[int]:
    """Storages of what a module holds, which no step changes that does not train.

    Of a part in training mode the buffers may change without any gradient: running means.
    """
    if module is None:
        return frozenset()
    buffers = (
        one for part in module.modules() if not part.training for one in part.buffers(recurse=False)
    )
    return _storages_of((*module.parameters(), *buffers))


def _storages_of(tensors: Iterable[Any]) -> frozenset[int]:
    return frozenset(int(t.untyped_storage()._cdata) for t in tensors if t.layout == _strided())


def _strided() -> Any:
    import torch

    return torch.strided


def with_unused_gradients(
    facts: Facts, parameters: Sequence[Any], optimizers: Sequence[Any]
) -> Facts:
    """Facts with the parameters that get gradients and are in none of these optimizers."""
    if not optimizers or not parameters:
        return facts
    used = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
    trained = [p for p in parameters if p.requires_grad]
    unused = [i for i, p in enumerate(trained) if id(p) not in used]
    read = [i for i, p in enumerate(trained) if id(p) in used]
    elements = sum(p.numel() for p in trained)
    return replace(
        facts,
        unused_gradients=len(unused),
        unused_gradients_share=sum(trained[i].numel() for i in unused) / max(elements, 1),
        unused_come_first=bool(unused) and max(unused) < min(read, default=len(trained)),
    )


def dtypes_of(parameters: Iterable[Any]) -> tuple[str, ...]:
    """Floating-point dtypes among parameters, the widest first."""
    found = {str(p.dtype).removeprefix("torch.") for p in parameters}
    return tuple(name for name in _DTYPES if name in found)


def module_kinds(module: Any) -> tuple[str, ...]:
    """The classes of a module's parts."""
    if module is None:
        return ()
    return tuple(sorted({type(part).__name__ for part in module.modules()}))


def _channels_last(inputs: Any) -> bool:
    import torch

    images = [t for t in nested_tensors(inputs) if t.dim() == 4]
    return bool(images) and all(
        t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous() for t in images
    )


def with_objects(facts: Facts, watcher: StepWatcher) -> Facts:
    """Facts with what the running script's modules, optimizers and loaders say."""
    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    module: Any = watcher.outermost() if watcher.outermost is not None else None
    parameters = list(module.parameters()) if module is not None else []
    optimizers = described(watcher.optimizers)
    # A loop holds the loader's iterator; the loader itself may be gone. Of each object only the
    # type is read: ``isinstance`` asks for its ``__class__``, and a proxy's may warn or raise.
    alive = gc.get_objects()
    loaders = [describe_loader(o) for o in alive if issubclass(type(o), DataLoader)]
    loaders += [describe_iterator(o) for o in alive if issubclass(type(o), _BaseDataLoaderIter)]
    facts = with_unused_gradients(facts, parameters, list(watcher.optimizers))
    trains = facts.trains or bool(optimizers)
    return replace(
        with_modules(facts, [] if module is None else [module], trains),
        trains=trains,
        optimizers=optimizers,
        step_source=watcher.source,
        compiles_by_method=bool(parameters) and compiles_by_method(module),
        loaders=tuple(dict.fromkeys(loaders)),
        modules=module_kinds(module),
    )
