"""What parallelism over several devices depends on, noted while a step is captured.

Which block of the model each parameter belongs to, and after which operator of the backward pass
its gradient is complete: what wrappers such as DDP and FSDP learn from hooks of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gobrrr.observe.op_arguments import short_name
from gobrrr.symbolic.tensor_subclasses import tensors_of
from gobrrr.timeline.graph import ModelFacts, Parameter

if TYPE_CHECKING:
    from gobrrr.symbolic.graph_recorder import GraphRecorder


def main_model(given: Any, modules: Sequence[Any]) -> Any:
    """The module that is trained: ``given`` if it is one, else the largest root of ``modules``.

    ``None`` without a module.
    """
    import torch

    if isinstance(given, torch.nn.Module):
        return given
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    roots = [module for module in modules if id(module) not in inner]
    return max(roots, key=lambda m: sum(p.numel() for p in m.parameters()), default=None)


def blocks_of(model: Any) -> list[tuple[str, Any]]:
    """The modules that ``fully_shard`` is applied to beside the root, with their paths.

    These are the elements, with parameters, of the outermost lists (``nn.ModuleList``,
    ``nn.Sequential``, ``nn.ModuleDict``); of a list of lists, the inner elements.
    """
    import torch

    lists = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)

    def has_parameters(module: Any) -> bool:
        return next(module.parameters(), None) is not None

    def elements(module: Any, path: str) -> Iterable[tuple[str, Any]]:
        for name, child in module.named_children():
            child_path = f"{path}.{name}" if path else name
            if not has_parameters(child):
                continue
            several = isinstance(child, lists) and sum(map(has_parameters, child.children())) > 1
            if several or not isinstance(module, lists):
                yield from elements(child, child_path)
            else:
                yield child_path, child

    return list(elements(model, ""))


def _held(tensor: Any) -> Any:
    """What this rank holds of a tensor that is distributed; any other itself."""
    return next(iter(tensors_of(tensor)), tensor)


class GradientWatch:
    """Notes, of each parameter of a model, when the step has its gradient.

    Args:
        recorder: writes the step down.
        model: that is trained.
        units: those of its modules that the program has sharded itself, the model among them.
        whole: of them, those that stay gathered after their forward pass.
        stored: by the identity of a module and the name of its parameter, the dtype of the shards
            where that is another.
        silent: whether gradients of what runs now are kept to this rank (``no_sync``).
    """

    def __init__(
        self,
        recorder: GraphRecorder,
        model: Any,
        units: Sequence[Any] = (),
        whole: Sequence[Any] = (),
        stored: Mapping[tuple[int, str], str] | None = None,
        silent: Callable[[], bool] = lambda: False,
    ) -> None:
        self._silent = silent
        self._recorder = recorder
        self._whole = whole
        self._stored = stored or {}
        self._model = model
        # Those that the program has sharded itself, the model among them; otherwise its blocks.
        self._units = [unit for unit in units if unit is not model]
        self._own_units = bool(units)
        # Storage of the parameter -> storage of its gradient, ops issued until then.
        self._ready: dict[int, tuple[int | None, int]] = {}
        self._passes: Counter[int] = Counter()
        self._last = 0
        with recorder.switch.off():
            for parameter in model.parameters():
                made = recorder.stand_ins.of(parameter)
                if made.requires_grad and made.is_leaf:
                    made.register_post_accumulate_grad_hook(self._note)

    def _note(self, parameter: Any) -> None:
        recorder = self._recorder
        if not recorder.recording or self._silent():
            return
        with recorder.switch.off():
            number = recorder.storages.number(_held(parameter))
            gradient = parameter.grad
            if number is None or gradient is None:
                return
            at = recorder.storages.number(_held(gradient))
            if len(recorder.graph) < self._last:
                # The step is run again.
                self._passes.clear()
            self._last = len(recorder.graph)
            self._passes[number] += 1
            self._ready[number] = (at, self._last)

    def facts(self) -> ModelFacts:
        """What is known of the model once the step has been captured."""
        recorder, model = self._recorder, self._model
        with recorder.switch.off():
            blocks = blocks_of(model)
            if self._own_units:
                paths = {id(module): path for path, module in model.named_modules()}
                blocks = [(paths[id(unit)], unit) for unit in self._units]
            unit_of: dict[int, set[str]] = {}
            names = {path: recorder.name_of(module) or path for path, module in blocks}
            for path, parameter in model.named_parameters(remove_duplicate=False):
                number = recorder.storages.number(_held(recorder.stand_ins.of(parameter)))
                within = [p for p in names if path.startswith(f"{p}.")]
                if number is not None:
                    unit_of.setdefault(number, set()).add(names[within[0]] if within else "")
            found = []
            for path, parameter in model.named_parameters():
                made = _held(recorder.stand_ins.of(parameter))
                number = recorder.storages.number(made)
                if number is None:
                    continue
                parent, _, name = path.rpartition(".")
                owner = model.get_submodule(parent)
                # What several blocks share is the root's.
                units = unit_of[number]
                gradient, ready = self._ready.get(number, (None, None))
                found.append(
                    Parameter(
                        name=path,
                        unit=next(iter(units)) if len(units) == 1 else "",
                        storage=number,
                        shape=tuple(made.shape),
                        dtype=short_name(made.dtype),
                        n_bytes=made.numel() * made.element_size(),
                        gradient=gradient,
                        ready=ready,
                        stored=self._stored.get((id(owner), name), ""),
                    )
                )
            buffers: Counter[Any] = Counter()
            for buffer in model.buffers():
                buffers[buffer.dtype] += buffer.numel() * buffer.element_size()
            whole = {""}
            if self._own_units:
                whole = {names.get(paths[id(unit)], "") for unit in self._whole}
        return ModelFacts(
            tuple(found),
            tuple(names.values()),
            tuple(buffers.values()),
            frozenset(whole),
            max(self._passes.values(), default=1),
        )
