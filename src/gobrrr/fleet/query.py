"""Questions to a fleet folder, in SQL, by DuckDB; nothing is written."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow as pa

from gobrrr.fleet.folder import FleetFolder
from gobrrr.fleet.schema import FILES, LEAF_COLUMNS, MAPPED, MERGED
from gobrrr.fleet.verdict import Answer
from gobrrr.timeline.errors import InputError

MEMORY_LIMIT = "1GB"
# What a question may be asked of, and what each holds.
VIEWS: dict[str, str] = {
    "steps": "one row for each step of a rank: its length and its leaves",
    "ops": "ops by shapes, module and phase, per step",
    "idle": "overhead by step and cause",
    "lines": "overhead by cause and line, per step",
    "collectives": "every call, with what it waited and for whom",
    "ranks": "the means of each rank, what it waits and what others wait for it",
    "files": "every file that was looked at, with its error",
}
_KEYS = pa.schema([("run", pa.string()), ("rank", pa.int64())])
_NO_TABLE = re.compile(r"Table with name \"?(.+?)\"? does not exist")


def ask(path: Path, question: str) -> Answer:
    """Answers one ``select`` over the views of a fleet folder.

    Raises:
        InputError: it is no fleet folder, no single ``select``, or DuckDB cannot answer it.
    """
    folder = FleetFolder.open(path)
    if set(str(folder.path.resolve())) & set("*?["):
        raise InputError(
            f"{path} cannot be queried: DuckDB takes the *, ? or [ in its path for a pattern"
        )
    with duckdb.connect(":memory:") as connection:
        for name, select in _views(folder).items():
            connection.execute(f'create view "{name}" as {select}')
        connection.execute(f"set memory_limit = '{MEMORY_LIMIT}'")
        connection.execute("set allowed_directories = ?", [[str(folder.path.resolve())]])
        # From here on only the folder can be read, and nobody can change that.
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        try:
            statements = connection.extract_statements(question)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InputError("--query takes one select statement; a fleet folder is only read")
            found = connection.execute(statements[0])
            columns = tuple(column[0] for column in found.description or ())
            return Answer(columns, tuple(found.fetchall()))
        except duckdb.Error as error:
            raise InputError(_sentence(error)) from None


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    match = _NO_TABLE.search(text)
    if match is not None:
        return f"no table {match[1]}; a fleet folder has {', '.join(VIEWS)}"
    # Behind it comes a drawing of the statement.
    return f"the query failed: {text.partition(' LINE 1:')[0]}"


def _views(folder: FleetFolder) -> dict[str, str]:
    mapped = {name: _parquet(folder, name, schema) for name, schema in MAPPED.items()}
    merged = {
        # Of a run alone: its rank is a column.
        name: _parquet(folder, name, schema, ranks=False)
        for name, schema in MERGED.items()
    }
    leaves = ", ".join(f"m.{name}" for name in LEAF_COLUMNS)
    return {
        **{
            name: f"select run, rank, * exclude (run, rank) from ({mapped[name]})"
            for name in ("steps", "ops", "idle", "lines")
        },
        "collectives": "select c.run, c.rank, c.* exclude (run, rank, call, exposed_from_ns, "
        f"exposed_to_ns), w.wait_s, w.last_rank from ({mapped['collectives']}) c "
        f"left join ({merged['waits']}) w using (run, rank, call)",
        "ranks": "select m.run, m.rank, m.host, m.device, m.world_size, m.steps, m.s, p.wait_s, "
        f"p.caused_s, p.busier_s, {leaves} from ({mapped['means']}) m "
        f"left join ({merged['paces']}) p using (run, rank)",
        "files": "select * exclude (key, stem) from "
        f"({_parquet(folder, 'files', FILES, keys=False)})",
    }


def _parquet(
    folder: FleetFolder,
    table: str,
    schema: pa.Schema,
    *,
    keys: bool = True,
    ranks: bool = True,
) -> str:
    """A ``select`` of the files of a table; of none, without rows but with its columns."""
    files = folder.tables(table)
    if not files:
        known = [*(_KEYS if ranks else _KEYS.remove(1)), *schema] if keys else list(schema)
        typed = ", ".join(f'null::{_TYPES[field.type]} as "{field.name}"' for field in known)
        return f"select * from (select {typed}) where false"
    listed = ", ".join("'" + str(path.resolve()).replace("'", "''") + "'" for path in files)
    hive = "hive_partitioning = false"
    if keys:
        types = "'run': varchar, 'rank': bigint" if ranks else "'run': varchar"
        hive = f"hive_partitioning = true, hive_types = {{{types}}}"
    return f"select * from read_parquet([{listed}], {hive})"


_TYPES: dict[pa.DataType, str] = {
    pa.string(): "varchar",
    pa.float64(): "double",
    pa.int64(): "bigint",
    pa.int32(): "integer",
    pa.bool_(): "boolean",
    pa.list_(pa.int64()): "bigint[]",
    pa.list_(pa.string()): "varchar[]",
}
