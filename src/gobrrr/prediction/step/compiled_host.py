"""What calling compiled code costs the host: guards, autograd, generated Python.

A compiled program runs no Python of the user's, and yet it is not free. Each call checks its guards
(Dynamo looks again at what the traced Python looked at), AOTAutograd wraps the graph in one node of
autograd with one edge for each parameter, every library call is made from generated Python, and
every gradient is handed to its parameter by a node of its own. The optimizer is not in the graph:
it costs what it cost.

The constants are fitted: to chains of 1 to 40 linear layers, matrix products, scalings and products
with one shared weight, each under ``no_grad`` and in training, with the time inside the generated
code taken apart from the time around it (torch 2.13, one Zen 4 core, 1 thread). All are host work:
they scale like the time of the smallest dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass

# ``torch.add`` of one element where the constants below were measured.
DISPATCH_S = 1.34e-6
# Enter Dynamo's frame, look up the graph, check the guards of the arguments.
ENTER_S = 55e-6
# Guards look at the modules that the traced Python went through: this share of what Python and
# dispatch of the forward pass take inside modules, each called once.
GUARDS = 0.2
# One autograd node around the forward graph, and an edge and a saved tensor for each parameter.
RECORD_S, RECORD_PER_PARAMETER_S = 70e-6, 2.6e-6
# The engine, the wrapper around the backward graph, and the hand-over of each gradient.
BACKWARD_S, PER_GRADIENT_S = 100e-6, 4.3e-6
# A library call keeps its kernel's fixed cost; generated Python adds an output buffer and checks.
LIBRARY_CALL_S = 1.5e-6
# A call of a generated function, and each group of fused ops in it: its loops and output buffers.
GENERATED_CALL_S, GENERATED_GROUP_S = 2.5e-6, 1.0e-6


@dataclass(frozen=True, slots=True)
class Entering:
    """Entering compiled passes, in seconds of that core.

    Attributes:
        frame_s: Dynamo's frame and the guards of the arguments.
        record_s: recording the node of autograd; 0 where nothing is recorded.
        engine_s: running it backward; 0 without a backward pass.
        gradients_s: handing each gradient to its parameter; likewise.
    """

    frame_s: float
    record_s: float
    engine_s: float
    gradients_s: float

    @property
    def forward_s(self) -> float:
        """Before the forward pass."""
        return self.frame_s + self.record_s

    @property
    def backward_s(self) -> float:
        """Before the backward pass."""
        return self.engine_s + self.gradients_s


def entering(*, parameters: int, trains: bool, records: bool, graphs: int = 1) -> Entering:
    """What entering a compiled forward pass and its backward pass costs.

    Args:
        parameters: how many tensors are trained.
        trains: whether there is a backward pass.
        records: whether autograd records the forward pass.
        graphs: that the forward pass is broken into, each entered and recorded by itself.
    """
    return Entering(
        ENTER_S * graphs,
        (RECORD_S * graphs + RECORD_PER_PARAMETER_S * parameters) * records,
        BACKWARD_S * graphs * trains,
        PER_GRADIENT_S * parameters * trains,
    )
