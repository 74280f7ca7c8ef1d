"""Fake tensors in place of a program's own: shapes without memory, and small values where known."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gobrrr.observe.snapshot import HOOKS, Snapshot, hooks_of
from gobrrr.observe.sparse_gradients import without_data
from gobrrr.symbolic.graph_storages import HOST, TARGET, Storages
from gobrrr.symbolic.meta_copies import MetaCopies
from gobrrr.symbolic.tensor_subclasses import (
    is_wrapper,
    plain_class,
    refuse_lazy,
    take_class,
    wrapper_of,
)
from gobrrr.symbolic.values.assumed_values import MOST_ASSUMED, assumption_of, rest_on
from gobrrr.symbolic.values.uniform_values import as_uniform, is_uniform
from gobrrr.timeline.errors import InputError

# Masks, positions and lengths steer a program; activations do not.
MOST_VALUES = 1 << 18
MOST_FLOATS = 16
MOST_TABLE = 4096
_VALUE = "_gobrrr_value"
# On a storage: how often its values were lost.
_LOST = "_gobrrr_lost"
# On a storage: it holds whatever its memory held before.
_BLANK = "_gobrrr_blank"


class _Known:
    """The value of a stand-in, and how often values of its storage were lost when it was noted."""

    __slots__ = ("lost", "value")

    def __init__(self, value: Any, lost: int) -> None:
        self.value = value
        self.lost = lost

    def __deepcopy__(self, memo: dict[int, Any]) -> _Known:
        # The copy of a stand-in is one as well; that of its value is no matter of the program's.
        value = self.value
        copied = value if is_uniform(value) else real_call(lambda: value.detach().clone(), (), {})
        rest_on(copied, assumption_of(value))
        return _Known(copied, 0)


class StandIns:
    """Makes stand-ins, one for each tensor, and keeps the values that a program may ask for."""

    def __init__(self, fake_mode: Any, storages: Storages) -> None:
        from torch._subclasses.fake_tensor import FakeTensor

        self.fake_mode = fake_mode
        self._fake_class = FakeTensor
        self.storages = storages
        self._made: dict[int, tuple[Any, Any]] = {}
        self._copies = MetaCopies()
        # Told when the program goes on by values: the assumption they rest on, if any.
        self.decided_by: Callable[[str | None], None] = lambda _: None
        # Whether arrays of unknown values are assumed, as single values are that are read.
        self.assumes_arrays = False

    def of(self, tensor: Any, place: str | None = None) -> Any:
        """The stand-in of a tensor (itself, if it is one)."""
        if isinstance(tensor, self._fake_class):
            if place is not None:
                self.storages.put(tensor, place)
            return tensor
        import torch

        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            # What it wraps is replaced where its operators arrive.
            return tensor
        if tensor.is_nested:
            raise InputError(
                "a nested tensor cannot be predicted: its lengths are data, which a capture "
                "does not have; give the step a padded batch, or one packed into a plain tensor"
            )
        known = self._made.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        refuse_lazy(type(tensor))
        if is_wrapper(tensor):
            made = wrapper_of(tensor, lambda held: self.of(held, place))
            self._made[id(tensor)] = (weakref.ref(tensor), made)
            self._made[id(made)] = (weakref.ref(made), made)
            return made
        device = tensor.device.type
        if device == "meta" or (device != "cpu" and tensor.layout is torch.strided):
            bare = real_call(self._copies.of, (tensor,), {})
            made = self._fake_class(self.fake_mode, bare, torch.device("cpu"))
            if isinstance(tensor, torch.nn.Parameter):
                made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
            elif tensor.requires_grad:
                made.requires_grad_()
            if tensor.is_leaf and tensor.grad is not None:
                made.grad = self.of(tensor.grad, place)
        elif tensor.layout is torch.sparse_coo:
            bare = real_call(without_data, (tensor,), {})
            made = self._fake_class(self.fake_mode, bare, torch.device("cpu"))
            made.requires_grad_(tensor.requires_grad)
        else:
            made = self.fake_mode.from_tensor(tensor, static_shapes=True)
        if device != "meta":
            _note(made, real_call(_kept_value, (tensor,), {}))
        kind = plain_class(tensor)
        if kind is not None:
            take_class(made, kind)
        for name, attribute in vars(tensor).items():
            vars(made).setdefault(name, attribute)
        _take_hooks(made, tensor)
        self._made[id(tensor)] = (weakref.ref(tensor), made)
        self.storages.number(made)
        if place is not None:
            self.storages.put(made, place)
        return made

    def within(self, value: Any, found: list[Any]) -> Any:
        """``value`` with stand-ins for its tensors; they are appended to ``found``."""
        import torch

        if isinstance(value, torch.Tensor):
            value = self.of(value)
            found.append(value)
            return value
        if isinstance(value, (list, tuple)):
            if not value or isinstance(value[0], (int, float)):
                return value
            items = [self.within(item, found) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        return value

    def everywhere(self, value: Any, place: str | None = None) -> Any:
        """``value`` with stand-ins for the tensors in its tuples, lists and dicts."""
        import torch

        if isinstance(value, torch.Tensor):
            return self.of(value, place)
        if isinstance(value, dict):
            copied = type(value)() if type(value) is dict else None
            if copied is None:
                for key, item in value.items():
                    value[key] = self.everywhere(item, place)
                return value
            copied.update((key, self.everywhere(item, place)) for key, item in value.items())
            return copied
        if type(value) in (list, tuple):
            return type(value)(self.everywhere(item, place) for item in value)
        return value


def _take_hooks(made: Any, tensor: Any) -> None:
    """What a program does with gradients as they come (clipping, an optimizer in the backward)."""
    for hook in hooks_of(tensor, HOOKS[:1]):
        made.register_hook(hook)
    for hook in hooks_of(tensor, HOOKS[1:]):
        made.register_post_accumulate_grad_hook(hook)


def _kept_value(tensor: Any) -> Any:
    """What to keep of a real tensor: a copy if it is small, one element if all are the same."""
    if worth_keeping(tensor) and (tensor.numel() <= MOST_FLOATS or not _is_data(tensor)):
        return tensor.detach().to("cpu", copy=True)
    # Weights are never asked for, and are too many to look at.
    if tensor.dtype.is_floating_point and (tensor.requires_grad or tensor.numel() > MOST_VALUES):
        return None
    return as_uniform(tensor.detach())


def _is_data(tensor: Any) -> bool:
    """Whether floating-point numbers are no table: those of a schedule rise or fall throughout."""
    if not tensor.dtype.is_floating_point:
        return False
    if tensor.requires_grad or tensor.dim() != 1:
        return True
    rises = tensor.detach().diff()
    return not bool((rises >= 0).all() | (rises <= 0).all())


def value_of(tensor: Any, *, blank: bool = False) -> Any:
    """The values of a stand-in, as a real tensor; ``None`` if unknown.

    ``blank``: also if nobody has written them yet.
    """
    known = getattr(tensor, _VALUE, None)
    if known is None or known.lost != _times_lost(tensor):
        return None
    return known.value if blank or not getattr(_storage(tensor), _BLANK, False) else None


def note_blank(tensor: Any, blank: bool) -> None:
    """Whether nobody has written what a stand-in and all that share its memory hold."""
    storage = _storage(tensor)
    if storage is not None:
        setattr(storage, _BLANK, blank)


def remember(tensor: Any, value: Any, assumption: str | None = None) -> None:
    """Keep the values of a stand-in, if a program is likely to ask for them.

    ``assumption``: the sentence that they rest on.
    """
    if worth_keeping(value, assumption) or is_uniform(value):
        rest_on(value, assumption)
        _note(tensor, value)


def forget(tensor: Any) -> None:
    """The values of a stand-in, and of all that share its memory, are no longer known."""
    setattr(tensor, _VALUE, None)
    storage = _storage(tensor)
    if storage is not None:
        setattr(storage, _LOST, getattr(storage, _LOST, 0) + 1)
        note_blank(tensor, False)


def _note(tensor: Any, value: Any) -> None:
    if value is not None:
        setattr(tensor, _VALUE, _Known(value, _times_lost(tensor)))


def _times_lost(tensor: Any) -> int:
    return int(getattr(_storage(tensor), _LOST, 0))


def _storage(tensor: Any) -> Any:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # layouts without one (sparse, nested)
        return None


def worth_keeping(tensor: Any, assumption: str | None = None) -> bool:
    """Whether a program may well ask for the values of such a tensor."""
    count = tensor.numel()
    if assumption is not None:
        return bool(count <= MOST_ASSUMED)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        # Tables of a schedule are of one dimension; what a model works on is not.
        return bool(count <= (MOST_FLOATS if tensor.dim() > 1 else MOST_TABLE))
    return bool(count <= MOST_VALUES)


class Swap(Snapshot):
    """Everything that a program can reach gets stand-ins; ``restore`` gives it its tensors back.

    Parameters, buffers and optimizer state are on the target; of other tensors the place is what
    the program says. No tensor is copied.
    """

    def __init__(self, stand_ins: StandIns, *roots: Any) -> None:
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        self._containers: list[Any] = []
        super().__init__(*roots)
        self._put(stand_ins)

    def _visit(self, value: Any, path: str) -> Any:
        import torch

        if id(value) not in self._seen:
            if isinstance(value, torch.nn.Module):
                self.modules.append(value)
            elif isinstance(value, torch.optim.Optimizer):
                self.optimizers.append(value)
        yield from super()._visit(value, path)

    def _take_tensor(self, tensor: Any) -> None:
        grad = tensor.grad if tensor.is_leaf else None
        self._tensors.append((tensor, None, grad, None))

    def _take_dict(self, value: dict[Any, Any], path: str) -> Any:
        self._containers.append(value)
        yield from super()._take_dict(value, path)

    def _take_container(self, value: Any, path: str) -> Any:
        if isinstance(value, list):
            self._containers.append(value)
        yield from super()._take_container(value, path)

    def _put(self, stand_ins: StandIns) -> None:
        import torch

        for module in self.modules:
            for table in (module._parameters, module._buffers):
                for tensor in table.values():
                    if tensor is not None:
                        stand_ins.of(tensor, TARGET)
        for optimizer in self.optimizers:
            for state in list(optimizer.state.values()):
                for name, tensor in state.items():
                    if isinstance(tensor, torch.Tensor):
                        # Without ``capturable`` or ``fused`` the step counter stays on the host.
                        counter = name == "step" and tensor.device.type == "cpu"
                        stand_ins.of(tensor, HOST if counter else TARGET)
            for parameter in list(optimizer.state):
                optimizer.state[stand_ins.of(parameter, TARGET)] = optimizer.state.pop(parameter)
        for container in self._containers:
            items = container.items() if isinstance(container, dict) else enumerate(container)
            for key, item in list(items):
                if isinstance(key, torch.Tensor):
                    # Tensors are told apart by who they are: what is asked for is a stand-in.
                    container[stand_ins.of(key)] = container.pop(key)
                    key = stand_ins.of(key)
                if isinstance(item, torch.Tensor):
                    container[key] = stand_ins.of(item)


def real_call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run an operator on real tensors from within the capture."""
    import torch
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch(), torch._C.DisableTorchFunction():
        return function(*args, **kwargs)
