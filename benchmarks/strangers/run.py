"""Files from strangers, damaged and hostile: does each end in a report or one clear sentence?

    python benchmarks/strangers/run.py --out FILE.json
    python benchmarks/strangers/run.py --out FILE.json --traces 100 --diagnoses 20 --seed 7

Traces and saved diagnoses are changed at random: bytes replaced, cut or doubled, numbers made
extreme, texts and lists made long, fields put where they do not belong; each is then read and
reported (of a diagnosis also checked against the one that it was made of) in a process of its own,
forked from one that has loaded everything. What counts: how it ended, the processor's time that it
took, and how far its memory grew beyond what it began with. Asked: no traceback, no case above 2 s,
none above ten times the size of its text and 200 MB.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import Record, parser

from gobrrr.cli import main as main_of_gobrrr

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
LIMIT_S, LIMIT_BYTES, TIMES_SIZE = 2.0, 200e6, 10
# One that takes longer is ended: it is over the limit, by how much is not known.
ENDED_S = 60
_NUMBER, _TEXT = re.compile(rb"-?\d+(?:\.\d+)?"), re.compile(rb'"[^"\\]{1,200}"')
_EXTREME = (b"0", b"-1", b"1e308", b"-1e308", b"NaN", b"Infinity", b"1e-300", b"9" * 30,
            b"30000000", b"9223372036854775807", b"null", b"true", b'"x"', b"[]",
            b"{}")  # fmt: skip
_LONG = (1_000, 30_000, 1_000_000)
Change = Callable[[random.Random, bytes], bytes]
Use = Callable[[Path, Path], list[list[str]]]


def _bytes(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text))
    return text[:at] + rng.randbytes(rng.randrange(12)) + text[at + rng.randrange(12) :]


def _cut(rng: random.Random, text: bytes) -> bytes:
    a, b = sorted(rng.randrange(len(text)) for _ in range(2))
    return text[:a] if rng.random() < 0.5 else text[:a] + text[b:]


def _double(rng: random.Random, text: bytes) -> bytes:
    a, b = sorted(rng.randrange(len(text)) for _ in range(2))
    return text[:b] + text[a : min(b, a + 20_000)] * rng.choice((1, 2, 50)) + text[b:]


def _somewhere(rng: random.Random, pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes]:
    begin = rng.randrange(len(text))
    found = pattern.search(text, begin) or pattern.search(text)
    assert found is not None
    return found


def _numbers(rng: random.Random, text: bytes) -> bytes:
    for _ in range(rng.choice((1, 5, 40))):
        if not _NUMBER.search(text):
            break
        found = _somewhere(rng, _NUMBER, text)
        text = text[: found.start()] + rng.choice(_EXTREME) + text[found.end() :]
    return text


def _texts(rng: random.Random, text: bytes) -> bytes:
    found = _somewhere(rng, _TEXT, text)
    piece = rng.choice((b"a", b"a::", b"<", b"(", b"f<", b"\\u202e", b"\\\\", b"0", b"/", b"., "))
    long = b'"' + piece * (rng.choice(_LONG) // len(piece)) + b'"'
    return text[: found.start()] + long + text[found.end() :]


def _lists(rng: random.Random, text: bytes) -> bytes:
    found = _somewhere(rng, _NUMBER, text)
    many = rng.choice(_LONG)
    made = rng.choice((b"[" + b"[]," * many + b"[]]", b"[" * many, b"[" + b"1," * many + b"1]"))
    return text[: found.start()] + made + text[found.end() :]


def _ranks(rng: random.Random, text: bytes) -> bytes:
    size = rng.choice((0, 1, 8, 30_000_000, 10**9, 10**30, -5))
    head = json.dumps({"rank": rng.choice((0, 7, 10**9)), "world_size": size}).encode()
    return text.replace(b"{", b'{"distributedInfo": ' + head + b",", 1)


def _keys(rng: random.Random, text: bytes) -> bytes:
    one, other = (_somewhere(rng, _TEXT, text) for _ in range(2))
    return text[: one.start()] + other[0] + text[one.end() :]


CHANGES: tuple[Change, ...] = (_bytes, _cut, _double, _numbers, _texts, _lists, _ranks, _keys)


def changed(rng: random.Random, text: bytes) -> tuple[str, bytes]:
    """The text after one to three changes, and their names."""
    names = []
    for change in rng.choices(CHANGES, k=rng.choice((1, 1, 2, 3))):
        if len(text) < 8 or not _NUMBER.search(text) or not _TEXT.search(text):
            break
        text = change(rng, text)
        names.append(change.__name__.strip("_"))
    return "+".join(names), text


def of_trace(path: Path, _: Path) -> list[list[str]]:
    """What is done with a stranger's trace: commands of gobrrr."""
    page, text = (str(path.with_suffix(end)) for end in (".html", ".md"))
    return [["trace", str(path), "--html", page, "--markdown", text]]


def of_diagnosis(path: Path, original: Path) -> list[list[str]]:
    """And with a stranger's diagnosis; a gate reads it as either side."""
    page, text = (str(path.with_suffix(end)) for end in (".html", ".md"))
    return [
        ["report", str(path), "--html", page, "--markdown", text],
        ["check", str(path), "--baseline", str(original)],
        ["check", str(original), "--baseline", str(path)],
    ]


def run(commands: list[list[str]]) -> str:
    """How they ended: ``a report``, ``a sentence``, or whatever else a user would see."""
    refused = False
    for command in commands:
        out, said = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
                status = main_of_gobrrr(command)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException as error:  # a traceback
            return f"{command[0]}: {type(error).__name__}: {str(error)[:200]}"
        told = said.getvalue().strip()
        if status not in (0, 1) and (status != 2 or not told or "Traceback" in told):
            return f"{command[0]}: status {status}: {told[-200:]}"
        refused |= status == 2
    return "a sentence" if refused else "a report"


def apart(use: Use, path: Path, original: Path) -> dict[str, Any]:
    """What one file takes, in a child of this process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(ENDED_S)
        before = resource.getrusage(resource.RUSAGE_SELF)
        how = run(use(path, original))
        after = resource.getrusage(resource.RUSAGE_SELF)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        grew = 1024 * (after.ru_maxrss - before.ru_maxrss)
        os.write(write, json.dumps({"how": how, "took_s": took, "grew_bytes": grew}).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"how": "ended", "took_s": None, "grew_bytes": None}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By kind of file: how they ended, what they took, which were over a limit."""
    found: dict[str, Any] = {}
    for kind in sorted({row["kind"] for row in rows}):
        own = [row for row in rows if row["kind"] == kind]
        told = [row for row in own if row["took_s"] is not None]
        over = [
            row
            for row in own
            if row["took_s"] is None
            or row["took_s"] > LIMIT_S
            or row["grew_bytes"] > TIMES_SIZE * row["size_bytes"] + LIMIT_BYTES
        ]
        usual = ("a report", "a sentence")
        found[kind] = {
            "files": len(own),
            "reports": sum(row["how"] == "a report" for row in own),
            "sentences": sum(row["how"] == "a sentence" for row in own),
            "others": dict(Counter(row["how"] for row in own if row["how"] not in usual)),
            "over_a_limit": len(over),
            "median_s": statistics.median(row["took_s"] for row in told) if told else None,
            "worst_s": max((row["took_s"] for row in told), default=None),
            "worst_bytes": max((row["grew_bytes"] for row in told), default=None),
        }
    return found


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--traces", type=int, default=10_000)
    options.add_argument("--diagnoses", type=int, default=2_000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    counts = {"trace": 12, "diagnosis": 6} if given.quick else {
        "trace": given.traces, "diagnosis": given.diagnoses
    }  # fmt: skip
    record = Record("strangers", given)
    traces = sorted((DATA / "traces").glob("*.json.gz"))
    sources: dict[str, tuple[Use, list[Path]]] = {
        "trace": (of_trace, traces),
        "diagnosis": (of_diagnosis, [DATA / "training.json", DATA / "minimal.json"]),
    }
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "file.json"
        for kind, (use, files) in sources.items():
            for file in files:
                run(use(shutil.copy(file, made) and Path(made) / file.name, file))
            texts = [
                gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes()
                for f in files
            ]
            told = time.monotonic()
            for number in range(counts[kind]):
                rng = random.Random(f"{given.seed} {kind} {number}")
                which = rng.randrange(len(files))
                names, text = changed(rng, texts[which])
                path.write_bytes(text)
                row = {"kind": kind, "number": number, "of": files[which].name, "changes": names,
                       "size_bytes": len(text), **apart(use, path, files[which])}  # fmt: skip
                rows.append(row)
                if time.monotonic() - told > 10:
                    told = time.monotonic()
                    print(f"{kind} {number + 1} of {counts[kind]}", flush=True)
    found = summary(rows)
    # The usual ones say nothing one by one.
    kept = [row for row in rows if row["how"] not in ("a report", "a sentence")
            or row["took_s"] is None or row["took_s"] > LIMIT_S / 2]  # fmt: skip
    print(json.dumps(found, indent=1))
    record.write({"summary": found, "limits": {"s": LIMIT_S, "bytes": LIMIT_BYTES}, "kept": kept,
                  "columns": ["kind", "how", "took_s", "grew_bytes", "size_bytes"],
                  "rows": [[r["kind"], r["how"], r["took_s"], r["grew_bytes"], r["size_bytes"]]
                           for r in rows]})  # fmt: skip
    wrong = [row for row in rows if row["how"] not in ("a report", "a sentence")]
    return int(given.quick and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
