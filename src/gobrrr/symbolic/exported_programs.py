"""``torch.export`` in a captured program: the module that is exported runs in its place.

The export would trace the module with symbolic sizes, in stand-ins of another kind. What it makes
runs the module's own operators in their order, so the module stands for it; what else is asked of
an exported program (its graph, its decompositions) is not known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.timeline.errors import CaptureError

AS_THE_MODULE = "an exported program is predicted as the module that it was made from"
_OF_THE_MODULE = frozenset(
    {"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"}
)


@contextlib.contextmanager
def exports_followed(assume: Callable[[str], None]) -> Iterator[None]:
    """Until the block ends ``torch.export.export`` gives a program whose ``module()`` is
    the module itself.

    ``assume`` is told in a sentence that it stands for the program.
    """
    from torch.export import ExportedProgram, _trace

    class FollowedProgram:
        """Stands for an ``ExportedProgram``, which it is to those who ask."""

        __class__ = property(lambda self: ExportedProgram)

        def __init__(self, module: Any) -> None:
            self._of = module

        def module(self, *_: Any, **__: Any) -> Any:
            assume(AS_THE_MODULE)
            return self._of

        def __getattr__(self, name: str) -> Any:
            if name in _OF_THE_MODULE:
                return getattr(self._of, name)
            if name.startswith("__"):
                raise AttributeError(name)
            raise CaptureError(
                f"cannot predict what is done with {name} of an exported program: a "
                "prediction follows its module() alone; predict the module that is exported"
            )

    former = _trace._export

    def followed(mod: Any, *_: Any, **__: Any) -> Any:
        return FollowedProgram(mod)

    _trace._export = followed
    try:
        yield
    finally:
        _trace._export = former
