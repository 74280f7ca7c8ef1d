"""C++ kernels that torch.compile generated in this process, by the name the profiler shows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SWITCH = "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"
_KERNEL = re.compile(r"cpp_pybinding\(\[.*?\], r?'''(.*?)'''", re.DOTALL)


def generated_kernel_sources() -> dict[str, str]:
    """Name -> C++ source of every loaded kernel; a name that stands for two is left out.

    Inductor keeps the modules that it has generated or found in its cache, each a file that holds
    its kernels' sources. Empty while nothing was compiled, or where a version of torch keeps no
    such list.
    """
    loaded = sys.modules.get("torch._inductor.codecache")
    modules = getattr(getattr(loaded, "PyCodeCache", None), "modules", ())
    if not modules:
        return {}
    from gobrrr.work.generated_cpp import kernel_name

    found: dict[str, str] = {}
    ambiguous: set[str] = set()
    for module in modules:
        try:
            text = Path(module.__file__).read_text()
        except (OSError, AttributeError, TypeError):
            continue
        for source in _KERNEL.findall(text):
            name = kernel_name(source)
            if name is None:
                continue
            if found.setdefault(name, source) != source:
                ambiguous.add(name)
    return {name: source for name, source in found.items() if name not in ambiguous}


@contextmanager
def kernels_built_to_be_seen() -> Iterator[None]:
    """Kernels that are generated inside report to the profiler, unless the user said otherwise.

    Inductor leaves the calls out by default, and its kernels are then time that nothing explains.
    """
    os.environ.setdefault(_SWITCH, "1")
    config = sys.modules.get("torch._inductor.config")
    settings = getattr(config, "cpp", None)
    if settings is None or not hasattr(settings, "enable_kernel_profile"):
        yield  # the variable is read when the compiler is loaded
        return
    before = settings.enable_kernel_profile
    settings.enable_kernel_profile = os.environ[_SWITCH] == "1"
    try:
        yield
    finally:
        settings.enable_kernel_profile = before
