"""Writes ``recorded_ops.json``: the operators that launched a kernel in recorded GPU traces.

    python tests/data/extract_recorded_ops.py TRACES_FOLDER

The names are the innermost operators', in the order of their launches, run lengths beside them.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from pathlib import Path

TRACES = (
    "h100_bert_small_inference",
    "h100_vit_nsfw_inference",
    "h100_qwen1.5_0.5b_inference",
)


def launched(path: Path) -> list[str]:
    """Names of the operators that launched something, in order."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {
        event["args"]["External id"]: event["name"].removeprefix("aten::")
        for event in events
        if event.get("cat") == "cpu_op"
    }
    launches = sorted(
        (
            event
            for event in events
            if event.get("cat") in ("cuda_runtime", "cuda_driver") and "Launch" in event["name"]
        ),
        key=lambda event: event["ts"],
    )
    # An operator that launches several kernels in a row (cuDNN's transposes) counts once.
    identities = itertools.groupby(event["args"]["External id"] for event in launches)
    return [names[identity] for identity, _ in identities]


def main() -> None:
    """Reads the traces in the folder given and writes the file beside this script."""
    folder = Path(sys.argv[1])
    found = {
        name: [
            [op, len(list(run))]
            for op, run in itertools.groupby(launched(folder / f"{name}.json.gz"))
        ]
        for name in TRACES
    }
    text = json.dumps(found, separators=(",", ":")).replace('"h100', '\n"h100')
    Path(__file__).with_name("recorded_ops.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
