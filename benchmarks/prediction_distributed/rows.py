"""Measured training on 2 to 128 A100s, and which models' runs constants may be fitted on.

The files are those of ``distributed``; their README says how each was timed. Models are told apart
by their size; ordered by size, every other one is fitted on, and nothing of the others is.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Widths of MPT models by size, from the smallest.
MPT_WIDTHS = {
    "125m": 768, "350m": 1024, "760m": 1536, "1b": 2048, "3b": 2560, "7b": 4096, "13b": 5120,
    "30b": 7168, "70b": 8192,
}  # fmt: skip
# Numbers of layers of the Megatron models, of each of two widths.
MEGATRON_LAYERS = (12, 16, 20, 24)
MEGATRON_WIDTHS = (1024, 2048)
GPUS_A_HOST = 8
# The file's names of GPUs -> key of the data sheet.
DEVICES = {
    "a100_80gb": "A100-SXM-80GB", "a100_40gb": "A100-SXM-40GB", "h100_80gb": "H100-SXM",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FsdpRow:
    """One run of an MPT model under FSDP.

    Attributes:
        model: ``"MPT-7b"``.
        width, heads, layers, vocabulary, seq_len: of the network.
        device: key of the data sheet.
        gpus: all together, 8 a host.
        microbatch: sequences per GPU.
        microbatches: of a step, gradients adding up.
        precision: ``amp_bf16`` or ``bf16``.
        sharding: ``FULL_SHARD`` or ``SHARD_GRAD_OP``.
        checkpointing: whether blocks are computed again in the backward pass.
        measured_s: one step, optimizer included.
        fitted: whether constants may be fitted on it; the others are reported.
    """

    model: str
    width: int
    heads: int
    layers: int
    vocabulary: int
    seq_len: int
    device: str
    gpus: int
    microbatch: int
    microbatches: int
    precision: str
    sharding: str
    checkpointing: bool
    measured_s: float
    fitted: bool


@dataclass(frozen=True, slots=True)
class MegatronRow:
    """One iteration of a GPT under Megatron-DeepSpeed.

    Attributes:
        width, heads, layers, seq_len: of the network.
        gpus: all together.
        micro_batch: sequences of one microbatch.
        microbatches: of an iteration, for each of the data-parallel copies.
        tensor, data, pipeline: degrees of parallelism; their product is ``gpus``.
        measured_s: one iteration, optimizer included.
        fitted: whether constants may be fitted on it; the others are reported.
    """

    width: int
    heads: int
    layers: int
    seq_len: int
    gpus: int
    micro_batch: int
    microbatches: int
    tensor: int
    data: int
    pipeline: int
    measured_s: float
    fitted: bool


def read_fsdp(folder: Path) -> Iterator[FsdpRow]:
    """The FSDP runs, file by file, but those on GPUs or in precisions that are not modelled."""
    for path in sorted(folder.glob("fsdp_mpt_*.csv")):
        yield from _fsdp_rows(path)


def _fsdp_rows(path: Path) -> Iterator[FsdpRow]:
    with path.open() as lines:
        for record in csv.DictReader(lines):
            size = record["model"].removeprefix("MPT-")
            if record["gpu"] not in DEVICES or "bf16" not in record["precision"]:
                print(
                    f"left out: {size} on {record['gpu']}, {record['precision']}", file=sys.stderr
                )
                continue
            yield FsdpRow(
                model=record["model"],
                width=int(record["d_model"]),
                heads=int(record["n_heads"]),
                layers=int(record["n_layers"]),
                vocabulary=int(record["vocab"]),
                seq_len=int(record["seq_len"]),
                device=DEVICES[record["gpu"]],
                gpus=int(record["gpus"]),
                microbatch=int(record["microbatch"]),
                microbatches=int(record["grad_accum"]),
                precision=record["precision"],
                sharding=record["sharding"],
                checkpointing=record["activation_checkpointing"] == "True",
                measured_s=float(record["step_s"]),
                fitted=size in [*MPT_WIDTHS][::2] and "a100" in record["gpu"],
            )


def read_megatron(folder: Path) -> Iterator[MegatronRow]:
    """The Megatron iterations, file by file."""
    for path in sorted(folder.glob("megatron_gpt_a100_*.csv")):
        yield from _megatron_rows(path)


def _megatron_rows(path: Path) -> Iterator[MegatronRow]:
    with path.open() as lines:
        for record in csv.DictReader(lines):
            width, layers = int(record["hidden"]), int(record["layers"])
            micro_batch, data = int(record["micro_batch"]), int(record["data_parallel"])
            known = layers in MEGATRON_LAYERS and width in MEGATRON_WIDTHS
            turn = MEGATRON_LAYERS.index(layers) + MEGATRON_WIDTHS.index(width) if known else 1
            yield MegatronRow(
                width=width,
                heads=int(record["heads"]),
                layers=layers,
                seq_len=int(record["seq_len"]),
                gpus=int(record["gpus"]),
                micro_batch=micro_batch,
                microbatches=int(record["global_batch"]) // (micro_batch * data),
                tensor=int(record["tensor_parallel"]),
                data=data,
                pipeline=int(record["pipeline_parallel"]),
                measured_s=float(record["iteration_ms"]) * 1e-3,
                fitted=turn % 2 == 0,
            )
