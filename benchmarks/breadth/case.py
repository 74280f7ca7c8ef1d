"""What a case of the sweep is: a program, and beside it what must come out.

A program is built in a process of its own, after ``torch.manual_seed(0)``. It is counted if it runs
in plain PyTorch on the CPU; one that does not is listed, and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[], Any]
Loss = Callable[[Any], Tensor]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


class Expected(str, Enum):
    """What must come out of a prediction.

    PREDICTED: a time.
    REFUSED: one sentence of gobrrr's own, because what is asked for cannot be known.
    EITHER: a time, or one sentence that says what is not known.
    """

    PREDICTED = "predicted"
    REFUSED = "refused"
    EITHER = "predicted or refused"


@dataclass(frozen=True)
class Program:
    """A program as it is handed to ``gobrrr.predict``: a model with its inputs, or a whole step.

    Attributes:
        model: called with ``inputs``; ``None`` if ``step`` is the whole program.
        inputs: positional arguments, or keyword arguments.
        loss: of the model's output; ``None``: there is no training step.
        make_optimizer: of the model; AdamW if ``None``.
        step: a callable without arguments, instead of a model.
    """

    model: Any = None
    inputs: tuple[Any, ...] | Mapping[str, Any] = ()
    loss: Loss | None = None
    make_optimizer: MakeOptimizer | None = None
    step: Step | None = None


@dataclass(frozen=True)
class Case:
    """A program by name, with the answer key.

    Attributes:
        name: unique within its kind.
        kind: ``architecture``, ``program``, ``odd input`` or ``count``.
        build: makes the program.
        expected: what must come out.
        because: why it cannot be asked, for all but PREDICTED.
        size_hint: of sizes that depend on data, given to ``predict``.
    """

    name: str
    kind: str
    build: Callable[[], Program]
    expected: Expected = Expected.PREDICTED
    because: str | None = None
    size_hint: int | None = None

    def __post_init__(self) -> None:
        if (self.expected is Expected.PREDICTED) != (self.because is None):
            raise ValueError(f"{self.name}: a reason is for what may be refused, and only for that")


@dataclass
class Programs:
    """A file's programs, in the order in which they stand there; ``add`` is the decorator."""

    cases: dict[str, Case] = field(default_factory=dict)

    def add(
        self,
        *,
        expected: Expected = Expected.PREDICTED,
        because: str | None = None,
        size_hint: int | None = None,
    ) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
        """Registers the decorated builder under its function's name."""

        def register(build: Callable[[], Program]) -> Callable[[], Program]:
            self.register(build.__name__, build, expected, because, size_hint)
            return build

        return register

    def register(
        self,
        name: str,
        build: Callable[[], Program],
        expected: Expected = Expected.PREDICTED,
        because: str | None = None,
        size_hint: int | None = None,
    ) -> None:
        """Registers ``build`` under ``name``; a second program of that name is an error."""
        if name in self.cases:
            raise ValueError(f"two programs are called {name}")
        self.cases[name] = Case(name, "program", build, expected, because, size_hint)


class FunctionModule(nn.Module):
    """``function(self, *inputs)`` as a module: floating-point tensors become parameters."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, Tensor) and part.is_floating_point():
                self.register_parameter(name, nn.Parameter(part))
            else:
                setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def mlp(width: int = 256) -> nn.Sequential:
    """Linear, ReLU, linear, all of one width."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))


def differentiable(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors of a nested output that need gradients, in order."""
    if isinstance(output, Tensor):
        if output.is_floating_point() and output.requires_grad:
            yield output
    elif hasattr(output, "items"):
        for _, part in output.items():
            yield from differentiable(part)
    elif isinstance(output, (list, tuple)):
        for part in output:
            yield from differentiable(part)


def mean_squares(output: Any) -> Tensor:
    """A scalar that reaches the first three differentiable tensors of any output."""
    parts = [part.float().pow(2).mean() for part, _ in zip(differentiable(output), range(3))]
    if not parts:
        raise RuntimeError("no differentiable output")
    return torch.stack(parts).sum()


def as_is(output: Tensor) -> Tensor:
    """The loss of a model that returns its loss."""
    return output


def trained(
    model: Any, *inputs: Any, loss: Loss = mean_squares, optimizer: MakeOptimizer | None = None
) -> Program:
    """A model that is asked about forward and training."""
    return Program(model, inputs, loss, optimizer)


def inference(model: Any, *inputs: Any) -> Program:
    """A model or function that is asked about forward alone."""
    return Program(model, inputs)


def whole_step(step: Step) -> Program:
    """A step as a user wrote it, of whatever it consists."""
    return Program(step=step)
