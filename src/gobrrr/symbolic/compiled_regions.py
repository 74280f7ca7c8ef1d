"""Whether code runs under the program's own ``torch.compile``, seen from the frames above it.

During a capture such functions run as they were written, in the wrapper that ``torch.compile``
makes (``torch/_dynamo/eval_frame.py``).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_HOME = str(Path("torch", "_dynamo", "eval_frame.py"))
_FLEX = "torch.nn.attention.flex_attention"


def under_compile() -> bool:
    """Whether a function that the program compiles is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if _is_wrapper(frame) and not _is_torchs_own(frame):
            return True
        frame = frame.f_back
    return False


def enters_flex_attention() -> bool:
    """Whether what is being entered is flex attention alone, called by a wrapper's code.

    That is predicted as compiled. Without ``torch.compile`` it compiles its own operator, to be
    run by eager kernels.
    """
    frame: Any = sys._getframe(1)
    while frame is not None and not _is_wrapper(frame):
        frame = frame.f_back
    if frame is None:
        return False
    home = sys.modules.get(_FLEX)
    function = frame.f_locals.get("fn")
    return _is_torchs_own(frame) or (
        function is not None and function is getattr(home, "flex_attention", None)
    )


def _is_wrapper(frame: Any) -> bool:
    # Those of ``torch._dynamo.disable`` are in the same file, and have no callback.
    return frame.f_code.co_filename.endswith(_HOME) and "callback" in frame.f_code.co_freevars


def _is_torchs_own(frame: Any) -> bool:
    return frame.f_back is not None and frame.f_back.f_globals.get("__name__") == _FLEX
