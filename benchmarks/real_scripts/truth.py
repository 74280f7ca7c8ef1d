"""What is true of each script: written before gobrrr ran on any of them, and not changed since.

FLOPs of matrix products and convolutions a step come from a formula, or from torch's
``FlopCounterMode`` in a run of its own (``counted.json``); times come from the clock in the script.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

COUNTED = None


@dataclass(frozen=True)
class Truth:
    """What gobrrr has to find.

    Attributes:
        flops: of matrix products and convolutions, one step; ``COUNTED``: by ``FlopCounterMode``.
        varying: steps differ in size: means are compared, work within 10 %.
        regime: the verdict, where the program leaves no doubt about it.
        at_least: leaves (or sums of leaves) and the least share of the step that they hold.
        parts: what else the wall time goes to, by the clock's names.
        ranks: processes that torchrun starts.
        needs: libraries that the project does not install.
        bytes_moved: a step's, where that is the point.
        kind: what a step is called.
    """

    flops: float | None = COUNTED
    varying: bool = False
    regime: str | None = None
    at_least: tuple[tuple[tuple[str, ...], float], ...] = ()
    parts: tuple[str, ...] = ()
    ranks: int = 1
    needs: tuple[str, ...] = ()
    bytes_moved: float | None = None
    kind: str = "training step"


def mlp_training(batch: int, *widths: int) -> float:
    """Forward, gradients of weights and of all inputs but the first: 2 FLOPs a multiply-add.

    >>> mlp_training(1, 2, 3)
    24.0
    """
    layers = [inputs * outputs for inputs, outputs in itertools.pairwise(widths)]
    return 2.0 * batch * (3 * sum(layers) - layers[0])


# An LSTM's four gates see input and state; the head; forward and twice that backward.
_LSTM = 3 * 8 * 32 * 2.0 * (4 * 256 * (128 + 256) + 256 * 256)

# torch's counter does not know the fused encoder layer: projections and feed-forward of 3 layers of
# 256 wide, 2 sentences, and the products of attention, over the lengths that the script draws.
_draw = random.Random(0)
_LENGTHS = [_draw.randint(10, 120) for _ in range(350)]
_ENCODER = sum(
    3 * 2 * n * (2.0 * 4 * 256**2 + 2 * 2 * 256 * 1024 + 4 * n * 256) for n in _LENGTHS
) / len(_LENGTHS)

TRUTH = {
    "nested_evaluation": Truth(
        mlp_training(64, 256, 1024, 1024, 10), regime="compute", parts=("evaluation",)
    ),
    "varlen_encoder": Truth(varying=True),
    "varlen_buckets": Truth(varying=True),
    "varlen_inference": Truth(_ENCODER, varying=True, regime="compute", kind="step"),
    "gan": Truth(),
    "wgan": Truth(),
    "generate_llama": Truth(parts=("prefill",), kind="decode"),
    "decode_by_hand": Truth(parts=("prefill",), kind="decode"),
    "hf_trainer_bert": Truth(parts=("evaluation",), needs=("accelerate",)),
    "hf_trainer_gpt": Truth(parts=("saving",), needs=("accelerate",)),
    "lightning_cnn": Truth(parts=("evaluation",), needs=("lightning",)),
    "trainer_of_ones_own": Truth(
        mlp_training(96, 512, 1024, 512), regime="compute", parts=("evaluation",)
    ),
    "accelerate_loop": Truth(4 * mlp_training(32, 256, 768, 768, 10), needs=("accelerate",)),
    "ddp_gloo": Truth(
        mlp_training(32, 512, 2048, 2048, 10),
        ranks=2,
        at_least=((("memory.network", "memory.network_wait"), 0.2),),
    ),
    "fsdp2_gloo": Truth(ranks=2, at_least=((("memory.network", "memory.network_wait"), 0.1),)),
    "dynamic_compile": Truth(varying=True, regime="compute"),
    "compiled_with_evaluation": Truth(regime="compute", parts=("evaluation",)),
    "raw_tensors": Truth(2.0 * 1536 * 1536 * 16, kind="step"),
    "raw_autograd": Truth(mlp_training(128, 512, 1024, 256)),
    "several_processes": Truth(mlp_training(64, 512, 1024, 10)),
    "checkpointing": Truth(mlp_training(64, 512, 2048, 512), parts=("checkpoint",)),
    "logging_metrics": Truth(mlp_training(128, *(256,) * 7), parts=("logging",)),
    "accumulation": Truth(4 * mlp_training(64, 256, 512, 256)),
    "two_optimizers": Truth(),
    "schedule_ema": Truth(regime="compute", parts=("evaluation",)),
    "loader_workers": Truth(mlp_training(64, 1024, 1024, 1024, 10)),
    "loader_slow": Truth(
        mlp_training(32, 4096, 256, 10),
        regime="overhead",
        at_least=((("overhead.data_loading",), 0.4),),
    ),
    "distillation": Truth(mlp_training(128, 256, 512, 100) + 2.0 * 128 * (256 * 2048 + 2048 * 100)),
    "rl_rollouts": Truth(varying=True),
    "autocast": Truth(mlp_training(64, 512, 1024, 1024, 10)),
    "activation_checkpointing": Truth(regime="compute"),
    "inference_fixed": Truth(regime="compute", kind="step"),
    "lstm_text": Truth(_LSTM, regime="compute", parts=("evaluation",)),
    "stochastic_depth": Truth(varying=True, regime="compute"),
    "many_tiny_ops": Truth(0.0, regime="overhead"),
    "os_exit": Truth(mlp_training(64, 512, 1024, 512)),
    "lbfgs_closure": Truth(),
    "samples_on_the_way": Truth(parts=("sampling",)),
    # add_ reads two arrays and writes one, mul_ reads one and writes one.
    "streaming_adds": Truth(0.0, regime="memory", bytes_moved=5 * 48e6, kind="step"),
    "dropout_heavy": Truth(),
}
