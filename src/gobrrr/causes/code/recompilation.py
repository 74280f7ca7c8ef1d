"""Functions that torch.compile makes again: the last batch of an epoch, a guard, the limit."""

from __future__ import annotations

import re
from collections import defaultdict

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.causes.noted import loader_made
from gobrrr.diagnosis.facts import Facts
from gobrrr.live.watch.compilations import COMPILED_MODULE
from gobrrr.observe.program_facts import CompilationFact, ProgramFacts
from gobrrr.observe.source_lines import format_line, is_user_file
from gobrrr.timeline.quantities import count, percent, time_text

# As many compilations again of one function are no warm-up: one for other sizes, one each for
# evaluation and gradients.
_FEWEST_AGAIN = 3
_SIZE = re.compile(r"size mismatch at index 0\. expected (?P<usual>\d+), actual (?P<other>\d+)")
_BOUND = re.compile(r"size\(\)\[0\]|\.shape\[0\]")
_FRAME = re.compile(r"^\d+/\d+: ")
_PLACE = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_LIMIT = ("recompile limit", "recompile_limit", "cache_size_limit", "cache size limit")


def guard_of(reason: str) -> str:
    """The guard that failed, in one line.

    >>> guard_of("1/7: len(s.a) == 7      # if not s.a:  # train.py:10 in step")
    'len(s.a) == 7'
    """
    first = _FRAME.sub("", reason.strip()).splitlines()[0] if reason.strip() else ""
    return first.split("   #")[0].split("  # ")[0].strip().rstrip(".")


def _guard_lines(again: list[CompilationFact]) -> list[str]:
    """The user's lines that the guards come from."""
    found = []
    for each in again:
        # Of the stack the innermost that is the user's: what called it may be torch's, or gobrrr's.
        places = [each for each in _PLACE.finditer(each.reason) if is_user_file(each["path"])]
        found += places[-1:]
    return [format_line(each["path"], int(each["line"]), each["name"]) for each in found]


def _of_torch(compiled: CompilationFact) -> bool:
    return "/torch/" in compiled.line.replace("\\", "/")


def _by_function(program: ProgramFacts) -> dict[str, list[CompilationFact]]:
    found: dict[str, list[CompilationFact]] = defaultdict(list)
    for each in program.compilations:
        found[each.frame or each.line].append(each)
    return found


def _again(made: list[CompilationFact]) -> list[CompilationFact]:
    return [each for each in made if each.reason]


def _reaches(made: list[CompilationFact], limit: int | None) -> bool:
    said = any(word in each.failed.lower() for each in made for word in _LIMIT)
    return said or (limit is not None and len(made) > limit)


def _goes_on(program: ProgramFacts, again: list[CompilationFact]) -> bool:
    """Whether it was compiled still in the later half of what was seen: no warm-up."""
    began = [each.began_s for each in program.compilations if each.began_s is not None]
    last = max((each.began_s or 0.0 for each in again), default=0.0)
    return bool(began) and last > min(began) + 0.5 * program.seen_s


def _told(
    program: ProgramFacts,
    again: list[CompilationFact],
    evidence: str,
    *,
    once: bool,
    at: tuple[str, ...] = (),
) -> Found:
    seconds = sum(each.seconds or 0.0 for each in again)
    share = min(1.0, seconds / program.seen_s) if program.seen_s > 0 else 0.0
    lines = (*at, *_guard_lines(again[-1:]), *program.compiling)
    lines = (*lines, *(each.line for each in again[-1:] if each.line and not _of_torch(each)))
    return saves_of_wall(
        f"{evidence}; these compilations took {time_text(seconds)}, {percent(share)} of the "
        f"{time_text(program.seen_s)} that were seen",
        # What happens once takes a share of what was seen, and of a long run nothing.
        tuple(dict.fromkeys(lines))[:3], 0.0, 0.0 if once else share, share, share,
    )  # fmt: skip


def _name(made: list[CompilationFact]) -> str:
    each = made[0]
    unnamed = _of_torch(each) or not each.line
    return COMPILED_MODULE if unnamed else f"{each.function} ({each.line})"


def _ragged(facts: Facts) -> Found | None:
    program = facts.program
    if program is None:
        return None
    loader = loader_made(facts) if facts.loaders else ()
    for made in _by_function(program).values():
        again = _again(made)
        sizes = [match for each in again if (match := _SIZE.search(each.reason))]
        others = {int(size["other"]) for size in sizes}
        if len(others) != 1 or _reaches(made, program.recompile_limit):
            continue
        (other,), usual = others, int(sizes[0]["usual"])
        if not _ends_with(facts, usual, other):
            continue
        related = [
            each for each in again if _SIZE.search(each.reason) or _BOUND.search(each.reason)
        ]
        return _told(
            program, related,
            f"{_name(made)} was compiled for batches of {count(usual)} and again for one of "
            f"{count(other)} (guard: {guard_of(sizes[0].string)})",
            once=True, at=loader,
        )  # fmt: skip
    return None


def _ends_with(facts: Facts, usual: int, other: int) -> bool:
    """Whether an epoch in batches of the usual size ends with one of the other, or may."""
    if other >= usual:
        return False
    loaders = [each for each in facts.loaders if each.length and each.batch_size == usual]
    if loaders:
        return any((o.length or 0) % usual == other for o in loaders if not o.drops_last)
    if facts.loaders:
        return False
    # Without a loader: steps have that size still, and are not of many.
    first = {shape[0] for op in facts.ops for shape in op.shapes if shape}
    return usual in first and not any(op.varies and op.shapes for op in facts.ops)


def _limit(facts: Facts) -> Found | None:
    program = facts.program
    if program is None:
        return None
    for made in _by_function(program).values():
        again = _again(made)
        if not again or not _reaches(made, program.recompile_limit):
            continue
        guards = list(dict.fromkeys(guard_of(each.reason) for each in again))
        return _told(
            program, again,
            f"{_name(made)} was compiled {count(len(made))} times and is given up: it runs "
            f"uncompiled since (guards that failed: {'; '.join(guards[-2:])})",
            once=True,
        )  # fmt: skip
    return None


def _often(facts: Facts) -> Found | None:
    program = facts.program
    if program is None:
        return None
    for made in _by_function(program).values():
        again = _again(made)
        if len(again) < _FEWEST_AGAIN or _reaches(made, program.recompile_limit):
            continue
        if not _goes_on(program, again):
            continue
        return _told(
            program, again,
            f"{_name(made)} was compiled {count(len(made))} times (the last guard that failed: "
            f"{guard_of(again[-1].reason)})",
            once=False,
        )  # fmt: skip
    return None


RAGGED_LAST_BATCH = Cause(
    name="ragged_last_batch",
    title="a smaller batch, as the last of an epoch, is compiled apart (drop_last, mark_dynamic)",
    words=("drop_last", "mark_dynamic", "torch.compile recompiles last batch", "TORCH_LOGS="
           "recompiles", "dynamic=True"),
    find=_ragged,
    remedy="DataLoader(..., drop_last=True); or torch._dynamo.mark_dynamic(x, 0) before the first "
    "step (a batch of one sample is compiled apart all the same), or pad the last batch",
    warns=True,
)  # fmt: skip
RECOMPILATION_LIMIT = Cause(
    name="recompilation_limit",
    title="torch.compile has given a function up: its recompilation limit (recompile_limit)",
    words=("recompile_limit", "cache_size_limit", "torch._dynamo hit config.recompile_limit",
           "TORCH_LOGS=recompiles", "recompilation"),
    find=_limit,
    remedy="keep what the guard looks at the same (no list that grows, no number of Python's that "
    "counts: a tensor instead), or mark_dynamic; a larger torch._dynamo.config.recompile_limit "
    "only if few more versions are needed",
    warns=True,
)  # fmt: skip
RECOMPILATIONS = Cause(
    name="recompilations",
    title="torch.compile compiles a function again and again (recompilation, guards)",
    words=("TORCH_LOGS=recompiles", "recompilation", "mark_dynamic", "guard failure"),
    find=_often,
    remedy="keep what the guard looks at the same, torch._dynamo.mark_dynamic for sizes that vary, "
    "a tensor in place of a number that counts",
)
