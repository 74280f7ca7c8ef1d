"""Layers of a model divided over several devices, as Megatron-LM divides them.

In a module that holds several ``nn.Linear`` and ends in one, the others are divided by their
outputs and the last by its inputs; heads are divided with them. Each device then computes its part
without asking the others, until the last layer's results are added up: one all-reduce in the
forward pass, and one of the gradients of what went in, in the backward pass (Shoeybi et al. 2019,
https://arxiv.org/abs/1909.08053, section 3). All else is computed whole on each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.symbolic.graph_storages import HOST
from gobrrr.symbolic.model_facts import main_model
from gobrrr.symbolic.stand_ins import StandIns, Swap
from gobrrr.symbolic.tensor_subclasses import is_wrapper
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.graph import CollectiveCall
from gobrrr.timeline.names import starred

if TYPE_CHECKING:
    from gobrrr.symbolic.graph_recorder import GraphRecorder

GROUP = "tp"
# What models call the layers that make queries, keys and values.
_PROJECTION = re.compile(r"(q|k|v|query|key|value)(_?(proj|projection|lin|linear))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Layers:
    """Linear layers of one module: ``columns`` are divided by outputs, ``row`` by inputs."""

    name: str
    parent: Any
    columns: tuple[Any, ...]
    row: Any


@dataclass
class Division:
    """A model's layers, divided; ``undo`` makes it whole again.

    Attributes:
        undivided: linear layers and attentions that are whole, a ``*`` for each number in a path.
        divided: what was divided and how, in words, once for modules that are alike.
    """

    undivided: tuple[str, ...] = ()
    divided: tuple[str, ...] = ()
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def undo(self) -> None:
        """Put back what was replaced, in reverse."""
        while self._undo:
            self._undo.pop()()

    def replace(self, table: Any, key: Any, value: Any) -> None:
        """Put a value into a list or dict until ``undo``."""
        former = table[key]
        self._undo.append(lambda: table.__setitem__(key, former))
        table[key] = value

    def put_back(self, action: Callable[[], None]) -> None:
        """Do something with ``undo``."""
        self._undo.append(action)


class _Reached(Swap):
    """The modules and optimizers that a step can reach; nothing of them is replaced."""

    def _put(self, stand_ins: StandIns) -> None:
        """Leaves them as they are."""


def divided(recorder: GraphRecorder, work: Any, degree: int) -> Division | None:
    """Divide the layers of what a step trains, before anything of it has a stand-in.

    ``None`` where the program has divided them itself.

    Raises:
        InputError: the step has no model, or it cannot be divided.
    """
    reached = _Reached(recorder.stand_ins, work)
    given = work[0] if isinstance(work, tuple) and work else getattr(work, "model", None)
    model = main_model(given, reached.modules)
    if model is None:
        raise InputError(
            f"tp={degree}: the step has no torch.nn.Module whose layers it could divide"
        )
    if any(is_wrapper(parameter) for parameter in model.parameters()):
        return None
    return divide_layers(recorder, model, reached.optimizers, degree)


def not_divisible(degree: int, error: UserCodeError, division: Division) -> InputError:
    """What to say where a model raises with its layers divided."""
    return InputError(
        f"tp={degree}: the model's own code fails with divided layers ({error}). Divided were "
        f"{'; '.join(division.divided)}. That is right where the first of them have one input and "
        "the last takes what they give: layers that do something else need a module of their own "
        "(an attention and an MLP in one module cannot be told apart). A number of heads, or a "
        "size, that is part of a shape has to be -1. Or leave out tp"
    )


def divide_layers(
    recorder: GraphRecorder, model: Any, optimizers: Iterable[Any], degree: int
) -> Division:
    """Divide the layers of ``model`` over ``degree`` devices; this one keeps the first part.

    The optimizers get the smaller parameters in place of the former ones, without state.

    Raises:
        InputError: there is no layer that can be divided, or the degree does not divide one.
    """
    found = list(_layers_of(model))
    if not found:
        raise InputError(
            f"tp={degree}: {type(model).__name__} has no module of several nn.Linear whose last "
            "one takes the others' outputs (an attention, an MLP), so no layer can be divided"
        )
    for layers in found:
        _check(layers, degree)
    told = dict.fromkeys(map(_told, found))
    division = Division(_undivided(model, found), tuple(told))
    smaller: dict[int, Any] = {}
    try:
        for layers in found:
            for column in layers.columns:
                _shrink(recorder, division, smaller, column, 0, degree)
            _shrink(recorder, division, smaller, layers.row, 1, degree)
            _divide_heads(division, layers, degree)
            _add_collectives(recorder, division, layers, degree)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for at, parameter in enumerate(group["params"]):
                    if id(parameter) in smaller:
                        division.replace(group["params"], at, smaller[id(parameter)][1])
            for parameter in [p for p in optimizer.state if id(p) in smaller]:
                state = optimizer.state.pop(parameter)
                division.put_back(partial(optimizer.state.__setitem__, parameter, state))
    except BaseException:
        division.undo()
        raise
    return division


def _layers_of(model: Any) -> Iterable[_Layers]:
    """The modules whose linear layers can be divided."""
    import torch

    for name, module in model.named_modules():
        linear = [child for child in module.children() if isinstance(child, torch.nn.Linear)]
        if len(linear) < 2:
            continue
        *columns, row = linear
        if _PROJECTION.fullmatch(_name_of(row, module)):
            # The last of what an attention projects, whose output layer is in another module.
            continue
        # What is computed from one input, and leads back to it.
        takes = [each for each in columns if each.in_features == row.out_features]
        made = {each.out_features for each in takes}
        fused = {size // 3 for size in made} | {size // 2 for size in made}
        if takes and len(takes) == len(columns) and row.in_features in made | fused:
            yield _Layers(name or type(module).__name__, module, tuple(columns), row)


def _name_of(layer: Any, module: Any) -> str:
    names: dict[int, str] = {id(child): name for name, child in module.named_children()}
    return names[id(layer)]


def _told(layers: _Layers) -> str:
    columns = ", ".join(_name_of(each, layers.parent) for each in layers.columns)
    row = _name_of(layers.row, layers.parent)
    return f"{columns} of {starred(layers.name)} by their outputs and {row} by its inputs"


def _undivided(model: Any, found: Iterable[_Layers]) -> tuple[str, ...]:
    """Paths of what multiplies by weights and is in none of the modules found.

    A fused projection whose parts differ in size (grouped queries) is among them: the model's code
    splits what it gives by sizes of its own. So is ``nn.MultiheadAttention``, whose weights are no
    layers.
    """
    import torch

    told = {id(each) for layers in found for each in (*layers.columns, layers.row)}
    whole: dict[str, None] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            # With its last layer.
            told |= {id(each) for each in module.modules()}
        elif not isinstance(module, torch.nn.Linear) or id(module) in told:
            continue
        whole[starred(name)] = None
    return tuple(whole)


def _check(layers: _Layers, degree: int) -> None:
    sizes = [(each.out_features, "outputs") for each in layers.columns]
    sizes.append((layers.row.in_features, "inputs"))
    sizes += [(count, name) for name, count in _heads_of(layers.parent).items()]
    for size, what in sizes:
        if size % degree:
            raise InputError(
                f"tp={degree} does not divide the {size} {what} of module {layers.name}"
            )


def _heads_of(module: Any) -> dict[str, int]:
    """Attributes that count heads."""
    return {
        name: value
        for name, value in vars(module).items()
        if "head" in name
        and "dim" not in name
        and "size" not in name
        and "group" not in name
        and type(value) is int
        and value > 1
    }


def _divide_heads(division: Division, layers: _Layers, degree: int) -> None:
    for name, count in _heads_of(layers.parent).items():
        division.replace(vars(layers.parent), name, count // degree)


def _shrink(
    recorder: GraphRecorder,
    division: Division,
    smaller: dict[int, Any],
    linear: Any,
    dimension: int,
    degree: int,
) -> None:
    """Keep one device's part of a layer's weight, and of the bias where outputs are divided."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    for name in ("weight", "bias"):
        former = linear._parameters.get(name)
        if former is None or (name == "bias" and dimension == 1):
            continue
        if id(former) not in smaller:
            shape = list(former.shape)
            shape[dimension] //= degree
            with recorder.switch.off():
                made = torch.nn.Parameter(
                    torch.empty(shape, dtype=former.dtype), former.requires_grad
                )
                recorder.storages.put(made, recorder.storages.place_of(former))
            # The former one is kept to be put back, not on the device.
            if isinstance(former, FakeTensor):
                recorder.storages.put(former, HOST)
            smaller[id(former)] = former, made
        division.replace(linear._parameters, name, smaller[id(former)][1])
    side = "out_features" if dimension == 0 else "in_features"
    division.replace(vars(linear), side, getattr(linear, side) // degree)


def _add_collectives(
    recorder: GraphRecorder, division: Division, layers: _Layers, degree: int
) -> None:
    import torch

    def add_up(tensor: Any) -> None:
        size = tensor.numel() * tensor.element_size()
        call = CollectiveCall("all_reduce", size, GROUP, tuple(range(degree)))
        recorder.keep_collective(call, tensor, recorder.place(sys._getframe(1)))

    class Enter(torch.autograd.Function):  # type: ignore[misc]
        """What goes in is used by all parts: its gradient is the sum of theirs."""

        @staticmethod
        def forward(_: Any, tensor: Any) -> Any:
            return tensor.view_as(tensor)

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            add_up(gradient)
            return gradient

    class Leave(torch.autograd.Function):  # type: ignore[misc]
        """What comes out is the sum of all parts; each gets its gradient."""

        @staticmethod
        def forward(_: Any, tensor: Any) -> Any:
            add_up(tensor)
            return tensor.view_as(tensor)

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            return gradient

    # The columns of one module mostly have one input, which enters once.
    entered: list[Any] = [None, None]

    def before_column(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if entered[0] is not args[0]:
            entered[:] = [args[0], Enter.apply(args[0])]
        return (entered[1], *args[1:])

    def after_row(_: Any, __: Any, output: Any) -> Any:
        entered[:] = [None, None]
        return Leave.apply(output)

    for column in layers.columns:
        division.put_back(column.register_forward_pre_hook(before_column).remove)
    division.put_back(layers.row.register_forward_hook(after_row).remove)
