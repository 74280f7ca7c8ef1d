"""``gobrrr plan``: which mesh of devices a step would run fastest on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gobrrr.cli.parsing import (
    add_host_overhead,
    memory_size,
    output_path,
    positive,
    require_torch,
    without_arguments,
)

DESCRIPTION = """Predict a training step on every mesh that so many devices can form.

Data parallelism (dp, DDP), sharded data parallelism (fsdp, FSDP2), tensor parallelism (tp)
and pipelines (pp). For each mesh: the step time, the exposed communication, the memory of a
rank and the energy. The best five are shown; meshes that do not fit into memory are listed
with the reason."""
EXAMPLES = """examples:
  gobrrr plan train.py:make_step --device H100-SXM --devices 64 --memory 80GB
  gobrrr plan train.py:make_step --device A100-SXM-80GB --devices 16 \\
      --hosts 2 --link 8x200Gb
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr plan``."""
    parser.add_argument(
        "target", metavar="FILE.py:FUNCTION",
        help="makes the step of one data-parallel rank, as for gobrrr predict",
    )  # fmt: skip
    group = parser.add_argument_group("devices and links")
    group.add_argument(
        "--device",
        required=True,
        metavar="NAME",
        help="a name that gobrrr devices lists, or the file of a card of your own (my-card.toml)",
    )
    group.add_argument(
        "--devices", type=positive, required=True, metavar="N", help="number of devices"
    )
    group.add_argument(
        "--memory", type=memory_size, metavar="SIZE",
        help="memory of each device, such as 80GB (default: from its data sheet)",
    )  # fmt: skip
    group.add_argument(
        "--hosts", type=positive, metavar="N", help="number of hosts (default: one per 8 devices)"
    )
    group.add_argument(
        "--link", metavar="RATE[,LATENCY]",
        help="network bandwidth of one host, all its adapters together: 8x400Gb, 50GB; and the "
        "latency of a message between hosts, added to NCCL's own per hop: 8x400Gb,20us "
        "(default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--microbatches", type=positive, metavar="N",
        help="microbatches of a pipeline's step, each the program's batch (default: 1 per stage)",
    )  # fmt: skip
    group = parser.add_argument_group("how the step runs there")
    group.add_argument("--autocast", metavar="fp16|bf16", help="under autocast")
    group.add_argument(
        "--size-hint", type=positive, metavar="N", help="a value for sizes that depend on data"
    )
    add_host_overhead(group)
    parser.add_argument("--json", type=output_path, metavar="PATH", help="write the whole plan")


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Plans; prints the best meshes."""
    parsed = parser.parse_args(arguments)
    require_torch("gobrrr plan")
    from gobrrr.measure.progress import shown
    from gobrrr.prediction.mesh.mesh import MOST_DEVICES, parse_link, refuse_processor
    from gobrrr.prediction.options import dtype_name
    from gobrrr.prediction.plan import PlanOptions, plan_meshes
    from gobrrr.prediction.step.targets import predicted_target
    from gobrrr.reports.plan_table import plan_json, plan_text
    from gobrrr.reports.terminal import options_for
    from gobrrr.symbolic.op_graph import CaptureOptions
    from gobrrr.timeline.errors import InputError
    from gobrrr.timeline.files import write_output
    from gobrrr.timeline.workload import load_function

    if parsed.devices > MOST_DEVICES:
        raise InputError(
            f"--devices {parsed.devices:,}: a mesh has {MOST_DEVICES:,} devices at the most"
        )
    refuse_processor(parsed.device)
    device, host = predicted_target(parsed.device, parsed.host_overhead)
    refuse_processor(device.key, device.kind)
    capture = CaptureOptions(autocast=dtype_name(parsed.autocast), size_hint=parsed.size_hint)
    options = PlanOptions(
        devices=parsed.devices,
        hosts=parsed.hosts,
        memory_bytes=parsed.memory,
        link=None if parsed.link is None else parse_link(parsed.link),
        microbatches=parsed.microbatches,
        capture=capture,
    )
    without_arguments(parsed.target)
    with shown(None) as tell:
        plan = plan_meshes(lambda: load_function(parsed.target), device, host, options, tell)
    name = Path(parsed.target).name
    if parsed.json is not None:
        write_output(parsed.json, plan_json(plan, name))
    sys.stdout.write(plan_text(plan, name, options_for(sys.stdout).width))
    if parsed.json is not None:
        print(f"Saved: {parsed.json}")
    return 0
