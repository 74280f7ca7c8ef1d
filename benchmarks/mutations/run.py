"""Lines broken one at a time: does a test notice?

    make mutations                                    # installs cosmic-ray, runs all, takes hours
    python benchmarks/mutations/run.py --out FILE.json            # again: goes on where it ended
    python benchmarks/mutations/run.py --out NEW.json --again FILE.json   # its survivors alone

cosmic-ray makes the mutants of a room (``a - b`` into ``a + b``, ``<`` into ``<=``, a number one
larger, a decorator removed); of them a sample is drawn by a fixed seed. Each is written into a copy
of the project, and every test file that runs its lines is run there until one fails: the files of
its own room, of the other rooms here, then those elsewhere that name its module. Annotations are
left out: nothing evaluates them. ``equivalent.toml`` names survivors that change nothing.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import tomllib
from benchmarks.command import ROOT, Record, parser, skip

ROOMS = ("work", "timeline", "attribution")
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# A file of tests may take this many times its time without a mutant, and some seconds more; so many
# times as long again by the clock, which others on the machine slow down.
TIMES, MORE_S, BY_THE_CLOCK = 3, 10, 10
# Without a mutant, while it is noted which lines run.
CLEAN_S = 300
# Beyond what the process has when it begins: a mutant can ask for any amount.
MORE_BYTES = 8 * 1024**3
SHOWN = ("module", "line", "operator", "occurrence", "was", "now")
# pytest's exit status where no test can run here.
_NONE_FOUND = 5
Row = dict[str, Any]


@dataclass(frozen=True)
class Mutant:
    """One change: ``was`` and ``now`` are the lines that differ, ``line`` the first of them."""

    module: str
    operator: str
    occurrence: int
    line: int
    was: str
    now: str
    code: str


@dataclass(frozen=True)
class Clean:
    """A file of tests on the code as it is: its seconds of the processor, and what it ran."""

    seconds: float
    lines: Mapping[str, frozenset[int]]


def _in_annotation(node: Any) -> bool:
    while (parent := node.parent) is not None:
        if parent.type == "funcdef" and node is parent.annotation:
            return True
        if parent.type in ("tfpdef", "annassign") and node in parent.children:
            # NAME ":" ANNOTATION, and ":" ANNOTATION "=" VALUE
            return bool(parent.children.index(node) == (2 if parent.type == "tfpdef" else 1))
        node = parent
    return False


def places(path: Path) -> list[tuple[str, int]]:
    """Operator and occurrence of all mutants of a file, those of annotations left out."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(path.read_text())))
    found = []
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():  # those that have to be told what to replace
            continue
        at = [node for node in nodes for _ in operator().mutation_positions(node)]
        found += [(name, i) for i, node in enumerate(at) if not _in_annotation(node)]
    return found


def mutant(path: Path, operator: str, occurrence: int) -> Mutant:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text = path.read_text()
    code = mutate_code(text, get_operator(operator)(), occurrence)
    before, after = text.splitlines(), code.splitlines()
    first = next(i for i, (a, b) in enumerate(zip(before, after)) if a != b)
    # Those after the change are the same, counted from the end.
    last = next(i for i, (a, b) in enumerate(zip(before[::-1], after[::-1])) if a != b)
    was, now = (
        " ".join(line.strip() for line in lines[first : max(len(lines) - last, first + 1)])
        for lines in (before, after)
    )
    module = ".".join(path.relative_to(ROOT / "src" / "gobrrr").with_suffix("").parts)
    return Mutant(module, operator.partition("/")[2], occurrence, first + 1, was, now, code)


def sample(room: str, size: int, seed: int) -> tuple[list[Mutant], int]:
    """Mutants of a room, drawn from all with equal chances; and how many there are in all."""
    files = sorted((ROOT / "src" / "gobrrr" / room).rglob("*.py"))
    every = [(path, *place) for path in files for place in places(path)]
    # A smaller sample is the beginning of a larger one.
    random.Random(f"{seed} {room}").shuffle(every)
    return [mutant(*each) for each in every[:size]], len(every)


def survivor(row: Row) -> Mutant | None:
    """The mutant of a row of an earlier run, wherever its line is now; ``None``: it is gone."""
    path = ROOT / _file_of(row["module"])
    lines = " ".join(line.strip() for line in path.read_text().splitlines())
    if row["was"] not in lines:
        return None
    operator = f"core/{row['operator']}"
    places_now = [occurrence for name, occurrence in places(path) if name == operator]
    for occurrence in sorted(places_now, key=lambda place: abs(place - row["occurrence"])):
        found = mutant(path, operator, occurrence)
        if (found.was, found.now) == (row["was"], row["now"]):
            return found
    return None


def _file_of(module: str) -> str:
    return f"src/gobrrr/{module.replace('.', '/')}.py"


def statement(code: str, line: int) -> range:
    """The lines of the innermost statement around a line, its decorators included."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.stmt):
            above = [each.lineno for each in getattr(node, "decorator_list", ())]
            lines = range(min(node.lineno, *above, node.lineno), (node.end_lineno or 0) + 1)
            # Walked from outer to inner ones.
            found = lines if line in lines else found
    return found


def in_function(code: str, line: int) -> bool:
    """Whether a line runs only where a function is called."""
    return any(
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body[0].lineno <= line <= (node.end_lineno or 0)
        for node in ast.walk(ast.parse(code))
    )


class Copy:
    """The project in a folder of its own, where tests run on one mutant after the other.

    A file of tests runs in a process forked from this one, which has loaded what is slow to load.

    Args:
        folder: an empty one.
        longest_s: files elsewhere than in the rooms here are left out if they take longer.
    """

    def __init__(self, folder: Path, longest_s: float) -> None:
        self.folder = folder
        self._longest_s = longest_s
        self._clean: dict[str, Clean | None] = {}
        listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                  "--exclude-standard"]  # fmt: skip
        names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        for name in ("numpy", "msgspec", "rich", "jinja2", "hypothesis", "pytest", "torch"):
            if importlib.util.find_spec(name):
                __import__(name)

    def files(self, mutant: Mutant) -> tuple[list[str], ...]:
        """The files of tests that could notice: of its room, of the others here, elsewhere.

        What runs when a module is imported every file runs: of others those that name the module.
        """
        room, _, name = mutant.module.partition(".")
        called = in_function((self.folder / _file_of(mutant.module)).read_text(), mutant.line)
        named = re.compile(rf"gobrrr\.{room}\.{name}\b|from gobrrr\.{room} import [^\n]*\b{name}\b")
        found: tuple[list[str], list[str], list[str]] = [], [], []
        for path in sorted((self.folder / "tests").rglob("test_*.py")):
            file = path.relative_to(self.folder)
            of = file.parts[1]
            if of == room or (of in ROOMS and called):
                found[of != room].append(str(file))
            elif (of in ROOMS or self._longest_s > 0) and named.search(path.read_text()):
                found[1 if of in ROOMS else 2].append(str(file))
        return found

    def clean(self, file: str) -> Clean | None:
        """A file without a mutant; ``None`` if it fails, or takes too long where it is."""
        if file not in self._clean:
            here = file.split("/")[1] in ROOMS
            lines = self.folder / "lines.json"
            how, by, seconds = self._run(file, CLEAN_S if here else int(self._longest_s) + 1, lines)
            if how == "survived":
                self._clean[file] = Clean(
                    seconds,
                    {name: frozenset(ran) for name, ran in json.loads(lines.read_text()).items()},
                )
            else:
                print(f"left out: {file} ({how} without a mutant{f': {by}' if by else ''})")
                self._clean[file] = None
        return self._clean[file]

    def outcome(self, mutant: Mutant, files: Sequence[Sequence[str]]) -> Row:
        """How it ended, by which test, after how many files of tests and seconds."""
        name = _file_of(mutant.module)
        path = self.folder / name
        before, times = path.read_bytes(), path.stat()
        around = statement(before.decode(), mutant.line)

        def noticing() -> Iterator[tuple[float, str]]:
            for some in files:
                known = [(clean.seconds, file) for file in some if (clean := self.clean(file))
                         and not clean.lines.get(name, frozenset()).isdisjoint(around)]  # fmt: skip
                yield from sorted(known)

        row: Row = {"outcome": "survived", "by": None, "files": 0, "seconds": 0.0}
        for usual_s, file in noticing():
            row["files"] += 1
            try:
                path.write_text(mutant.code)
                how, by, seconds = self._run(file, int(TIMES * usual_s + MORE_S))
            finally:
                path.write_bytes(before)
                # Its bytecode is valid again.
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            row["seconds"] = round(row["seconds"] + seconds, 1)
            if how != "survived":
                return {**row, "outcome": how, "by": by or file}
        return row

    def _run(
        self, file: str, limit_s: int, lines: Path | None = None
    ) -> tuple[str, str | None, float]:
        said = self.folder / "failed.txt"
        said.unlink(missing_ok=True)
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.setsid()
                status = self._tests(file, limit_s, said, lines)
            finally:
                os._exit(status)
        try:
            ended, status, used = os.wait4(child, os.WNOHANG)
            while not ended and time.monotonic() - begin < BY_THE_CLOCK * limit_s:
                time.sleep(0.02)
                ended, status, used = os.wait4(child, os.WNOHANG)
        finally:
            # What the tests started ends with them; so do they, at Ctrl-C.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
            return "timeout", None, time.monotonic() - begin
        seconds = used.ru_utime + used.ru_stime
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return "timeout", None, seconds
        if status in (0, _NONE_FOUND << 8):
            return "survived", None, seconds
        return "killed", said.read_text() if said.exists() else None, seconds

    def _tests(self, file: str, limit_s: int, said: Path, lines: Path | None) -> int:
        """In the forked process: pytest's exit status; what ran goes to ``lines``."""
        sys.dont_write_bytecode = lines is None
        os.chdir(self.folder)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        paths = [str(self.folder / name) for name in ("src", "", "tests")]
        sys.path[:] = paths + [path for path in sys.path if not path.startswith(str(ROOT))]
        os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in list(sys.modules):
            if name.partition(".")[0] in ("gobrrr", "benchmarks"):
                del sys.modules[name]
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MORE_BYTES, now + MORE_BYTES))
        import pytest

        import coverage

        wanted = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not gpu",
            "--hypothesis-seed=0",
            file,
        ]
        if lines is None:
            return int(pytest.main(wanted, plugins=[_Watch(said)]))
        watched = coverage.Coverage(data_file=None, include=[str(self.folder / "src" / "*")])
        watched.start()
        status = int(pytest.main(wanted, plugins=[_Watch(said)]))
        watched.stop()
        data = watched.get_data()
        ran = {
            str(Path(name).relative_to(self.folder)): data.lines(name)
            for name in data.measured_files()
        }
        lines.write_text(json.dumps(ran))
        return status


class _Watch:
    """Notes the first failure; a failing example is not made smaller, for nobody reads it."""

    def __init__(self, said: Path) -> None:
        self._said = said

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutations", settings.default, phases=phases, database=None)
        settings.load_profile("mutations")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self._said.exists():
            self._said.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self._said.exists():
            self._said.write_text(report.nodeid)


def wilson(found: int, of: int) -> tuple[float, float]:
    """Wilson's interval of a share, at 95 %."""
    z = NormalDist().inv_cdf(0.975)
    middle = (found + z * z / 2) / (of + z * z)
    half = z / (of + z * z) * sqrt(found * (of - found) / of + z * z / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def summary(rows: Sequence[Row], mutants: Mapping[str, int]) -> dict[str, Any]:
    """By room: how many were drawn and how they ended; the share alive is of those not equivalent.

    ``alive_of_own_tests`` is what the room's own tests left alive, ``not_run`` those of the alive
    whose lines no test ran.
    """
    found = {}
    for room in sorted({row["module"].partition(".")[0] for row in rows}):
        own = [row for row in rows if row["module"].partition(".")[0] == room]
        ended = Counter(row["outcome"] for row in own)
        counted = len(own) - ended["equivalent"]
        alive = ended["survived"]
        elsewhere = sum(
            row["by"] is not None and not row["by"].startswith(f"tests/{room}/") for row in own
        )
        found[room] = {
            "mutants": mutants[room],
            "drawn": len(own),
            **{how: ended[how] for how in ("killed", "timeout", "survived", "equivalent")},
            "alive_of_own_tests": alive + elsewhere,
            "not_run": sum(row["outcome"] == "survived" and not row["files"] for row in own),
            "share_alive": alive / counted if counted else None,
            "interval_95": wilson(alive, counted) if counted else None,
        }
    return found


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows, with those that survived and are listed as equivalent named so."""
    listed = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    why = {(each["module"], each["was"], each["now"]): each["why"] for each in listed}
    return [
        {**row, "outcome": "equivalent", "why": reason}
        if row["outcome"] == "survived"
        and (reason := why.get((row["module"], row["was"], row["now"])))
        else row
        for row in rows
    ]


def _kept(path: Path | None, mutants: Mapping[str, int], seed: int) -> list[Row]:
    """The rows of an earlier run, of the same sample."""
    if path is None or not path.is_file():
        return []
    earlier = json.loads(path.read_text())
    if (earlier["mutants"], earlier["seed"]) != (dict(mutants), seed):
        sys.exit(f"{path.name} is of another sample: give another --out")
    rows: list[Row] = earlier["rows"]
    return rows


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    options.add_argument("--size", type=int, default=120, help="mutants drawn of each room")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--most-s", type=float, default=30.0, metavar="N",
                         help="leave out files of tests elsewhere that take longer")  # fmt: skip
    options.add_argument("--again", type=Path, metavar="FILE",
                         help="of an earlier run: what it killed stays killed")  # fmt: skip
    given = options.parse_args()
    if not hasattr(os, "fork"):
        skip("mutants are tested in forked processes, which this system has not")
    for name in ("cosmic_ray", "coverage", "pytest", "hypothesis"):
        if importlib.util.find_spec(name) is None:
            skip(f"{name} is not installed; make mutations installs it")
    record = Record("mutations", given, "cosmic-ray", "pytest", "hypothesis")
    if given.quick:
        given.rooms, given.size = ["timeline"], 2
    rows: list[Row] = []
    if given.again:
        earlier = json.loads(given.again.read_text())
        mutants, given.seed = earlier["mutants"], earlier["seed"]
        rows = [{**row, "of": given.again.name} for row in earlier["rows"] if row["by"]]
        found = [survivor(row) for row in earlier["rows"] if not row["by"]]
        drawn = [each for each in found if each is not None]
        print(f"{len(drawn)} survivors of {len(earlier['rows'])}; gone: {len(found) - len(drawn)}")
    else:
        by_room, mutants = [], {}
        for room in given.rooms:
            some, mutants[room] = sample(room, given.size, given.seed)
            by_room.append(some)
            print(f"{room}: {len(some)} of {mutants[room]} mutants", flush=True)
        # One of each room at a time: what is ended early has some of all.
        drawn = [each for row in zip_longest(*by_room) for each in row if each is not None]
    rows = _kept(given.out, mutants, given.seed) or rows
    done = {_key(row) for row in rows}

    def write() -> None:
        told = judged(rows)
        record.write({"seed": given.seed, "mutants": mutants, "longest_file_s": given.most_s,
                      "summary": summary(told, mutants), "rows": told})  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="gobrrr-mutations-") as folder:
        copy = Copy(Path(folder), 0.0 if given.quick else given.most_s)
        for number, each in enumerate(drawn):
            row = {name: getattr(each, name) for name in SHOWN}
            if _key(row) in done:
                continue
            files = copy.files(each)
            row |= copy.outcome(each, [files[0][:3]] if given.quick else files)
            rows.append(row)
            write()
            print(f"{number + 1} of {len(drawn)}: {row['outcome']} in {row['seconds']} s: "
                  f"{each.module}:{each.line} {each.was} -> {each.now}", flush=True)  # fmt: skip
    write()
    print(json.dumps(summary(judged(rows), mutants), indent=1))
    return 0


def _key(row: Row) -> tuple[str, str, str, int]:
    """Which mutant it is; its line may move."""
    return row["module"], row["operator"], row["was"], row["occurrence"]


if __name__ == "__main__":
    # However it is asked to end, the copy goes, and what runs in it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A shell lets what it runs in the background ignore Ctrl-C, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
