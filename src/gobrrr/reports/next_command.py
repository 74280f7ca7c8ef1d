"""The last line of a report: the command to type next.

What the user gave to change what is diagnosed is given again, where the next command knows it.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import count

# The options of each command that decide what is run and how, and not what is shown of it.
CARRIED = {
    "run": ("--steps", "--warmup", "--step", "--stop", "--threads"),
    "fix": ("--threads", "--allow", "--tolerance", "--memory-limit"),
    "trace": ("--ceilings",),
}
# What a search was limited to holds for the same search alone.
CHOICE = ("--only", "--exclude")
_CHARTS = "draws the step, with all tables"


@dataclass(frozen=True, slots=True)
class Next:
    """A command, and what it does; ``command`` is empty where there is none to give."""

    command: str
    does: str = ""


def next_command(diagnosis: Diagnosis, saved_as: str = "", shows_tables: bool = False) -> Next:
    """What to do after reading a report.

    Args:
        diagnosis: what the report is of.
        saved_as: the file that holds it; empty: none.
        shows_tables: whether the report shows tables already.
    """
    kind, given = diagnosis.source.get("kind"), str(diagnosis.source.get("command") or "")
    if kind == "trace":
        return _of_trace(diagnosis, given, saved_as, shows_tables)
    if kind not in ("script", "module", "function"):
        return Next("")
    ranks = diagnosis.source.get("world_size")
    if not given and not saved_as:
        return _in_python(diagnosis)
    if given and isinstance(ranks, int) and ranks > 1:
        command = f"gobrrr run --nproc-per-node {ranks} --html report.html"
        return Next(with_program(command, diagnosis), "draws all ranks")
    idle = ", on an idle machine" if diagnosis.timed_on_busy_machine else ""
    if given and diagnosis.fixes is not None and diagnosis.fixes.enough_s is not None:
        minutes = max(1, math.ceil(diagnosis.fixes.enough_s / 60))
        command = f"gobrrr fix --budget {minutes}m"
        return Next(with_program(command, diagnosis, CHOICE), f"a budget for all trials{idle}")
    if given and diagnosis.regime is None:
        return Next(with_program("gobrrr run", diagnosis), f"measures once more{idle}")
    if given and diagnosis.fixes is not None:
        return _after_search(diagnosis, given)
    if given and diagnosis.untried is not None and diagnosis.untried.fixes:
        return Next(with_program("gobrrr fix", diagnosis), _trials(diagnosis))
    if saved_as and not shows_tables:
        return Next(f"gobrrr report {shlex.quote(saved_as)} --by line,op", "lines and ops")
    if not given:
        return Next(f"gobrrr report {shlex.quote(saved_as)} --html report.html", _CHARTS)
    return Next(with_program("gobrrr run --html report.html", diagnosis), _CHARTS)


def with_program(command: str, diagnosis: Diagnosis, also: tuple[str, ...] = ()) -> str:
    """A command of gobrrr with the program behind it, and options of both as the user gave them.

    ``also``: options that are carried beside the usual ones; none that ``command`` has is.
    """
    kind, given = diagnosis.source.get("kind"), str(diagnosis.source.get("command") or "")
    name, own = [*command.split(), ""][1], command.split()
    if kind == "trace" and name != "trace":
        return f"{command} SCRIPT"
    options = diagnosis.source.get("options")
    words: list[str] = []
    for flag in (*CARRIED.get(name, ()), *also):
        if given and isinstance(options, dict) and flag in options and flag not in own:
            words += [flag, str(options[flag])] if options[flag] else [flag]
    return " ".join(filter(None, (command, shlex.join(words), given)))


def _trials(diagnosis: Diagnosis) -> str:
    untried = diagnosis.untried
    assert untried is not None
    changes = "1 change" if len(untried.fixes) == 1 else f"{count(len(untried.fixes))} changes"
    if untried.time_s is None:
        return f"tries {changes}"
    return f"tries {changes}, about {max(1, round(untried.time_s / 60))} min"


def _after_search(diagnosis: Diagnosis, given: str) -> Next:
    assert diagnosis.fixes is not None
    best = ",".join(diagnosis.fixes.best)
    if best and diagnosis.source.get("kind") == "script":
        name = shlex.quote(f"fast_{plain_name(Path(shlex.split(given)[0]).name)}")
        command = f"gobrrr fix --only {best} --write {name}"
        return Next(with_program(command, diagnosis), "writes the changed script")
    return Next(with_program("gobrrr run --html report.html", diagnosis), _CHARTS)


def _in_python(diagnosis: Diagnosis) -> Next:
    if diagnosis.untried is not None and diagnosis.untried.fixes:
        return Next("gobrrr.fix(target)", _trials(diagnosis))
    return Next('diagnosis.save("d.json")', "and then: gobrrr report d.json --by line,op")


def _of_trace(diagnosis: Diagnosis, given: str, saved_as: str, shows_tables: bool) -> Next:
    again = with_program("gobrrr trace", diagnosis)
    if diagnosis.ranks and given:
        return Next(f"{again} --html report.html", "draws all ranks")
    # What the recording lacks comes before tables that could not name it.
    if given and not diagnosis.device.ceilings:
        return Next(f"{again} --ceilings c.json",
                    "after `gobrrr ceilings --json c.json` where it was recorded")  # fmt: skip
    # The line of what follows the last op is in every trace.
    has_lines = any(row.name and row.count for row in diagnosis.lines)
    if not has_lines and diagnosis.ops:
        return Next("torch.profiler.profile(..., with_stack=True)", "records source lines")
    tables = [name for name, rows in (("line", has_lines), ("op", diagnosis.ops)) if rows]
    by = ",".join(tables) or "cause"
    if saved_as and not shows_tables:
        return Next(f"gobrrr report {shlex.quote(saved_as)} --by {by}", "what takes the time")
    if given and not shows_tables:
        return Next(f"{again} --by {by}", "what takes the time")
    if given:
        return Next(f"{again} --perfetto steps.json.gz", "for ui.perfetto.dev")
    return Next('diagnosis.save("d.json")', f"and then: gobrrr report d.json --by {by}")
