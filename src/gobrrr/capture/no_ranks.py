"""A program that starts torch.distributed where there is no job: told that it needs a mesh."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from gobrrr.capture.imported_names import replaced_by_name
from gobrrr.capture.target_modules import Replacements
from gobrrr.timeline.errors import InputError


@contextlib.contextmanager
def without_ranks() -> Iterator[None]:
    """Until the block ends, a program that asks a launcher's environment for its rank is told so.

    A group that it describes itself is made, as anywhere.
    """
    import torch.distributed as dist

    made = getattr(dist, "init_process_group", None)
    if made is None:
        yield
        return

    @functools.wraps(made)
    def with_ranks_of_its_own(*args: Any, **kwargs: Any) -> Any:
        try:
            return made(*args, **kwargs)
        except ValueError as error:
            if "environment variable" not in str(error):
                raise
            raise InputError(
                "the program starts torch.distributed, and there are no ranks here: predict it on "
                "a mesh of them (--mesh dp=8, say); plan takes a plain model, which it divides"
            ) from None

    put = Replacements()
    put(dist, "init_process_group", with_ranks_of_its_own)
    put(dist.distributed_c10d, "init_process_group", with_ranks_of_its_own)
    try:
        with replaced_by_name(put.of_modules()):
            yield
    finally:
        put.undo()
