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


def entering_s(*, parameters: int, trains: bool) -> tuple[float, float]:
    """Before a compiled forward pass and before its backward pass, in seconds of that core.

    Args:
        parameters: how many tensors are trained.
        trains: whether there is a backward pass; without one nothing is recorded.
    """
    if not trains:
        return ENTER_S, 0.0
    record_s = RECORD_S + RECORD_PER_PARAMETER_S * parameters
    return ENTER_S + record_s, BACKWARD_S + PER_GRADIENT_S * parameters
