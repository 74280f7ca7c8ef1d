"""What a few steps compute: outputs, losses, gradients, and where they move the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gobrrr.timeline.workload import Workload
from gobrrr.verification.copies import (
    SEED,
    StepFunction,
    in_precision,
    module_of,
    private_copy,
    random_states,
    set_seeds,
    tensors_in,
)

TRAINING_STEPS = 3
# Names that compilers and wrappers put before a parameter's own.
_WRAPPED = ("_orig_mod.", "module.")


@dataclass(frozen=True)
class Evaluation:
    """What some steps computed. All tensors are detached and on the CPU.

    Attributes:
        outputs: the first forward's (inference: the step's) tensors by path.
        gradients: of the first step, by parameter; ``None`` where there was none.
        losses: one per step.
        moved: all parameters' movement over the steps, by parameter.
        draws: whether the first step drew random numbers.
        random_after: the generators after the first step.
        integers: outputs that are no measures but choices: indices, tokens, masks.
        given: what each of the calls whose outputs are kept was given of these, where it was seen.
    """

    outputs: Mapping[str, Any]
    gradients: Mapping[str, Any]
    losses: tuple[float, ...]
    moved: Mapping[str, Any]
    draws: bool
    random_after: tuple[Any, ...] = field(repr=False, default=())
    integers: frozenset[str] = frozenset()
    given: tuple[str, ...] = ()


def evaluate(
    workload: Workload,
    *,
    steps: int = TRAINING_STEPS,
    reached: Callable[[], Mapping[str, Any]] | None = None,
    around: Callable[[Callable[[], Any]], Any] = lambda call: call(),
) -> Evaluation:
    """Run a private copy from the seed and keep what it computes; it is consumed by that.

    Inference runs one step, training ``steps``. ``reached`` gives the tensors that a bare
    callable left behind: they are outputs too. ``around`` calls each piece of the
    workload's own code. Raises what the workload raises.
    """
    module = module_of(workload.model)
    parameters = named_parameters(module, workload.optimizer)
    start = {name: _kept(p) for name, p in parameters.items()} if workload.trains else {}
    outputs: dict[str, Any] = {}
    if workload.trains and not isinstance(workload, StepFunction):
        set_seeds()
        outputs = _kept_all(tensors_in(around(workload.forward)))
    losses: list[float] = []
    gradients: dict[str, Any] = {}
    set_seeds()
    before = random_states()
    after: tuple[Any, ...] = ()
    for number in range(steps if workload.trains else 1):
        if number:
            set_seeds(SEED + number)
        result = around(workload.step)
        if number == 0:
            after = random_states()
            gradients = {
                name: None if p.grad is None else _kept(p.grad) for name, p in parameters.items()
            }
            if not workload.trains:
                outputs = _kept_all(tensors_in(result))
            if reached is not None:
                outputs.update(_kept_all(reached()))
        if workload.trains:
            losses += [_scalar(t) for t in list(tensors_in(result).values())[:1]]
    if not workload.trains and all(gradient is None for gradient in gradients.values()):
        gradients = {}
    moved = {}
    if workload.trains:
        moved = {name: _kept(p).double() - start[name].double() for name, p in parameters.items()}
    integers = frozenset(name for name, tensor in outputs.items() if is_integral(tensor))
    return Evaluation(outputs, gradients, tuple(losses), moved, before != after, after, integers)


def named_parameters(module: Any, optimizer: Any) -> dict[str, Any]:
    """Parameters by name, without what wrappers put before it; the optimizer's others by place."""
    named: dict[str, Any] = {}
    if module is not None:
        for name, parameter in module.named_parameters():
            for prefix in _WRAPPED:
                name = name.replace(prefix, "")
            named[name] = parameter
    held = {id(p) for p in named.values()}
    groups = optimizer.param_groups if optimizer is not None else ()
    for g, group in enumerate(groups):
        for i, parameter in enumerate(group["params"]):
            if id(parameter) not in held:
                named[f"optimizer[{g}][{i}]"] = parameter
    return named


def reference_of(workload: Workload, *, steps: int = TRAINING_STEPS) -> tuple[Evaluation, str]:
    """The same steps in float64 on the CPU's or device's own kernels, and what it is called.

    Raises InputError or what the model raises if it cannot run in float64.
    """
    import torch

    usual = torch.get_default_dtype()
    copy = in_precision(private_copy(workload), torch.float64)
    # Tensors that the model makes on its way take the default type.
    torch.set_default_dtype(torch.float64)
    try:
        return evaluate(copy, steps=steps), "the float64 reference"
    finally:
        torch.set_default_dtype(usual)


@dataclass(frozen=True)
class Expected:
    """What a changed step is compared with: the original's evaluation and the reference's."""

    original: Evaluation
    reference: Evaluation
    name: str
    notice: str = ""


def expect(
    workload: Workload,
    original: Evaluation,
    *,
    steps: int = TRAINING_STEPS,
) -> Expected:
    """Evaluate the reference; if that is impossible the original takes its place, with a notice."""
    own = Expected(original, original, "the original")
    if isinstance(workload, StepFunction):
        return own
    try:
        reference, name = reference_of(workload, steps=steps)
    except Exception as e:
        # Whatever it is: the user's model does not run in float64.
        first = str(e).strip().splitlines()[:1]
        why = f"{type(e).__name__}{': ' + first[0][:120] if first else ''}"
        return Expected(original, original, own.name, f"no float64 reference ({why})")
    if original.draws and original.random_after != reference.random_after:
        return Expected(original, original, own.name, "float64 draws different random numbers")
    if not all(is_finite(t) for t in reference.outputs.values()):
        return Expected(original, original, own.name, "the float64 reference is not finite")
    return Expected(original, reference, name)


def call_name(number: int) -> str:
    """What the outputs of a script's call are kept under, by its number from 1."""
    return f"call {number}"


def is_integral(tensor: Any) -> bool:
    """Whether it holds integers or truth values, of which none is nearly another."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)


def is_finite(tensor: Any) -> bool:
    """Whether every element is."""
    import torch

    return bool(torch.isfinite(tensor).all())


def _kept(tensor: Any) -> Any:
    dense = tensor.detach()
    if dense.layout != _strided():
        dense = dense.to_dense()
    if dense.is_quantized:
        dense = dense.dequantize()
    return dense.cpu().clone()


def _strided() -> Any:
    import torch

    return torch.strided


def _kept_all(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _kept(tensor) for name, tensor in tensors.items()}


def _scalar(tensor: Any) -> float:
    return float(tensor.detach().double().sum()) if tensor.numel() else math.nan
