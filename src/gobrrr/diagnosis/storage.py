"""A diagnosis from a JSON file: what any earlier version wrote can be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.schema import SCHEMA_VERSION, Diagnosis
from gobrrr.timeline.errors import InputError

# From version n to n + 1, on the decoded JSON. One entry per change that an old file would not
# survive (a field renamed or given another meaning); a new field with a default needs none.
_GZIP = b"\x1f\x8b"
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


class _Header(msgspec.Struct):
    schema_version: int


class _Kind(msgspec.Struct):
    schema_version: int | None = None
    traceEvents: msgspec.Raw | None = None  # noqa: N815 - as PyTorch's profiler writes it


def load(path: str | os.PathLike[str]) -> Diagnosis:
    """Reads a diagnosis that this or an earlier version wrote.

    Raises:
        InputError: no such file, not a diagnosis, or written by a newer version.
    """
    return decode(read(path), name=str(path))


def read(path: str | os.PathLike[str]) -> bytes:
    """A file's content. Raises InputError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def is_diagnosis(path: str | os.PathLike[str]) -> bool:
    """Whether the file is to be read as a diagnosis: JSON, whole or cut short, without the events
    of a trace. Raises InputError.
    """
    data = read(path)
    try:
        found = msgspec.json.decode(data, type=_Kind)
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data[:2] != _GZIP
    return found.schema_version is not None or found.traceEvents is None


def decode(data: bytes, *, name: str = "the diagnosis") -> Diagnosis:
    """A diagnosis from JSON; ``name`` stands for it in errors.

    Raises:
        InputError: see ``load``.
    """
    try:
        version = msgspec.json.decode(data, type=_Header).schema_version
    except msgspec.ValidationError as error:
        raise InputError(
            f"{name} is not a gobrrr diagnosis (no schema_version); gobrrr run and gobrrr trace "
            "write one with --json, and gobrrr trace reads profiler traces"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if data[:2] == _GZIP:
            raise InputError(
                f"{name} is compressed: if it is a profiler trace, gobrrr trace reads it"
            ) from error
        what = f"is not complete JSON: {error}" if data.strip() else "is empty"
        raise InputError(f"{name} {what}") from error
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{name} was written by a newer gobrrr (schema {version}, this one reads up to "
            f"{SCHEMA_VERSION}); upgrade gobrrr"
        )
    if version < 1:
        raise InputError(f"{name} has schema version {version}, which no gobrrr ever wrote")
    try:
        if version == SCHEMA_VERSION:
            return _with_all_leaves(msgspec.json.decode(data, type=Diagnosis))
        fields: dict[str, Any] = msgspec.json.decode(data)
        for older in range(version, SCHEMA_VERSION):
            migrate = MIGRATIONS.get(older)
            fields = fields if migrate is None else migrate(fields)
        fields["schema_version"] = SCHEMA_VERSION
        return _with_all_leaves(msgspec.convert(fields, type=Diagnosis))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name} is not a gobrrr diagnosis: {error}") from error


def _with_all_leaves(diagnosis: Diagnosis) -> Diagnosis:
    """A leaf that did not exist when the file was written was in another: it is zero."""
    for leaves in (diagnosis.leaves, *(rank.leaves for rank in diagnosis.ranks or ())):
        for leaf in LEAVES:
            leaves.setdefault(leaf, 0.0)
    return diagnosis
