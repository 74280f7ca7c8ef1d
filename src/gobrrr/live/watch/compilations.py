"""What torch.compile did in this process: each function that it compiled, again and why."""

from __future__ import annotations

import sys

from gobrrr.observe.program_facts import CompilationFact
from gobrrr.observe.source_lines import format_line, is_gobrrr_file

# What stands around a module's call while modules are looked for (``CallWatch.discover``): a module
# that was handed to torch.compile meanwhile is compiled with it.
OUTERMOST_CALL, COMPILED_MODULE = "outermost_call", "a compiled module"


def compilations() -> tuple[CompilationFact, ...]:
    """What torch.compile did in this process, oldest first; nothing where it was never loaded."""
    loaded = sys.modules.get("torch._dynamo.utils")
    get = getattr(loaded, "get_compilation_metrics", None)
    if get is None:
        return ()
    found: list[CompilationFact] = []
    # One that gave up at the limit has a number alone: "1/8", the ninth of the second frame.
    named: dict[str, tuple[str, str]] = {}
    for each in get():
        frame = str(getattr(each, "compile_id", None) or "").rpartition("/")[0]
        name, file = getattr(each, "co_name", None), getattr(each, "co_filename", None)
        if name is not None and file is not None:
            # A step that is recorded goes through functions of gobrrr's.
            first = getattr(each, "co_firstlineno", None)
            if not is_gobrrr_file(file):
                named[frame] = name, format_line(file, first or 0, name)
            elif name == OUTERMOST_CALL:
                named[frame] = COMPILED_MODULE, ""
        if frame not in named:
            continue
        start_us = getattr(each, "start_time_us", None)
        found.append(
            CompilationFact(
                *named[frame],
                reason=str(getattr(each, "recompile_reason", None) or ""),
                seconds=getattr(each, "entire_frame_compile_time_s", None),
                failed=str(getattr(each, "fail_reason", None) or ""),
                frame=frame,
                began_s=start_us * 1e-6 if isinstance(start_us, int) else None,
            )
        )
    return tuple(found)
