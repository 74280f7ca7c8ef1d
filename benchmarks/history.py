"""What git knows of the commits that results were made on."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class NoHistoryError(Exception):
    """This is no clone with the whole history, so nothing tells which code a result is of."""


@cache
def in_history(commit: str) -> bool:
    """Whether the code here descends from a commit.

    Raises:
        NoHistoryError: nothing can tell.
    """
    if git("rev-parse", "--is-shallow-repository") == "true":
        raise NoHistoryError(
            "this clone is shallow, and results are checked against the whole history: "
            "git fetch --unshallow"
        )
    # Not whether the object exists: an old clone keeps commits that no branch has any more.
    asked = ["git", "-C", str(ROOT), "merge-base", "--is-ancestor", commit, "HEAD"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def git(*arguments: str) -> str:
    """What a git command says about this repository.

    Raises:
        NoHistoryError: this is not one, or git is missing.
    """
    try:
        # Sources unpacked inside another repository have that one's history.
        if Path(_run("rev-parse", "--show-toplevel")).resolve() == ROOT:
            return _run(*arguments)
    except (OSError, subprocess.CalledProcessError):
        pass
    raise NoHistoryError(
        "this folder is not a clone of gobrrr's repository, or git is missing: only the history "
        "tells on which code a result was measured"
    )


def _run(*arguments: str) -> str:
    asked = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
