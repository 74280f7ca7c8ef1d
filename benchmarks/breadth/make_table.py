"""Writes ``architectures.json``: of which types of transformers a tiny network runs, and how.

Only plain PyTorch is run, no prediction: the table is made before anything is asked.

    PYTHONPATH=. python -m benchmarks.breadth.make_table
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from benchmarks.breadth import transformers_models

TABLE = Path(__file__).with_name("architectures.json")
LIMIT_S = 120


def _look(model_type: str, write: int) -> None:
    signal.alarm(LIMIT_S)
    recipe, reason = transformers_models.find_recipe(model_type)
    found = {"reason": reason} if recipe is None else asdict(recipe)
    os.write(write, json.dumps(found).encode()[:60_000])


def look_in_child(model_type: str) -> dict[str, Any]:
    """The recipe of a type, or why there is none; whatever it does, this process goes on."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            _look(model_type, write)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return {"reason": f"no answer within {LIMIT_S} s, or died (status {status})"}
    found: dict[str, Any] = json.loads(text)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TABLE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    from transformers import CONFIG_MAPPING

    types = sorted(CONFIG_MAPPING)
    # What every child needs is imported once, before any is forked.
    transformers_models.find_recipe("bert")
    rows: dict[str, dict[str, Any]] = {}
    for number, model_type in enumerate(types, start=1):
        rows[model_type] = look_in_child(model_type)
        print(f"{number}/{len(types)} {model_type}: {rows[model_type]}", flush=True)
    found = {name: row for name, row in rows.items() if "reason" not in row}
    missing = {name: row["reason"] for name, row in rows.items() if "reason" in row}
    head = json.dumps({"transformers": version("transformers"), "torch": torch.__version__})
    body = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    left = ",\n".join(f"  {json.dumps(name)}: {json.dumps(why)}" for name, why in missing.items())
    arguments.out.write_text(
        f'{{"versions": {head},\n"networks": {{\n{body}\n}},\n"without": {{\n{left}\n}}}}\n'
    )


if __name__ == "__main__":
    main()
