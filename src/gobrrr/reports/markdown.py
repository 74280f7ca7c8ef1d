"""The report as Markdown, for a pull-request comment or a CI job summary."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gobrrr.diagnosis.advice import advice_of
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports import advice_lines, sentences
from gobrrr.reports.fix_table import finding_groups, fix_table, summary_lines
from gobrrr.reports.memory_table import memory_lines, memory_table
from gobrrr.reports.next_command import next_command
from gobrrr.reports.rank_tables import job_line, rank_tables
from gobrrr.reports.tables import TextTable, tables_named, time_scale
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import share

# Everything that GitHub's Markdown (https://github.github.com/gfm/) or HTML could take as markup.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@-])")


def render(diagnosis: Diagnosis, *, top: int | None = None, by: Sequence[str] = ()) -> bytes:
    """The report as UTF-8: the ten largest rows of ops and classes unless told otherwise."""
    return report_markdown(diagnosis, top=top or 10, by=by or ("op", "class")).encode()


def report_markdown(
    diagnosis: Diagnosis, *, top: int = 10, by: Sequence[str] = ("op", "class")
) -> str:
    """The verdict and the split in the open, tables folded; names are escaped.

    ``by`` are names of ``reports.TABLES``.
    """
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s
    lines = [f"### {escape(sentences.title(diagnosis))}", ""]
    lines += [escape(sentences.step_time(diagnosis)), ""]
    if what := sentences.what_a_step_is(diagnosis):
        lines += [escape(what), ""]
    if diagnosis.verdict:
        lines += [f"**{escape(plain_name(diagnosis.verdict, 4000))}**", ""]
    lines += [f"> {escape(plain_name(notice, 2000))}" for notice in diagnosis.notices]
    lines += [""] if diagnosis.notices else []
    lines += [f"| where | {scale.unit} | of the step | |", "|---|--:|--:|---|"]
    for level in sentences.split_levels(diagnosis):
        time, of = scale.number(level.time_s), share(level.time_s, step_s, 1)
        lines.append(f"| **{level.name}** | **{time}** | **{of}** | |")
        for part in level.parts if level.name != "unmodelled" else ():
            time, of = scale.number(part.time_s), share(part.time_s, step_s, 1)
            lines.append(f"| {part.label} | {time} | {of} | {escape(part.note)} |")
    lines.append("")
    for text in (
        sentences.seen_steps(diagnosis),
        sentences.wall_time(diagnosis),
        sentences.slow_steps(diagnosis),
        sentences.speed_of_light(diagnosis),
        sentences.device_time(diagnosis),
        sentences.energy(diagnosis),
        sentences.least_certain(diagnosis),
        sentences.batch_note(diagnosis),
    ):
        lines += [escape(text), ""] if text else []
    lines += _advice(diagnosis, top)
    for heading, findings in finding_groups(diagnosis) if diagnosis.fixes is not None else ():
        lines += [f"| {heading.partition(',')[0]} | saves per step | because |", "|---|---|---|"]
        for finding in findings[:top]:
            name, saving, because = sentences.finding_lines(finding, diagnosis)
            lines.append(f"| {escape(name)} | {saving} | {escape('; '.join(because))} |")
        lines.append("")
    if diagnosis.fixes is not None:
        lines += [*_table(fix_table(diagnosis)), ""] if diagnosis.findings else []
        if memory_table(diagnosis).rows:
            lines += [*_table(memory_table(diagnosis)), ""]
        said = [*summary_lines(diagnosis), *memory_lines(diagnosis)]
        lines += [f"{escape(line)}\n" for line in said]
        if diagnosis.fixes.snippet:
            lines += ["```python", diagnosis.fixes.snippet, "```", ""]
    tables = [*tables_named(by, diagnosis, top), *rank_tables(diagnosis, top)]
    for table in tables:
        if table.rows:
            lines += [*_table(table), ""]
    notes = [
        *sentences.coverage(diagnosis),
        job_line(diagnosis),
        sentences.measuring(diagnosis),
        sentences.card(diagnosis),
    ]
    lines += [f"<sub>{escape(note)}</sub>\n" for note in notes if note]
    found = next_command(diagnosis)
    if found.command:
        lines += ["Next" + f" ({escape(found.does)})" * bool(found.does) + ":", ""]
        lines += ["```", plain_name(found.command, 4000), "```"]
    return "\n".join(lines).rstrip() + "\n"


def _advice(diagnosis: Diagnosis, top: int) -> list[str]:
    """What to do as a table, the largest saving first."""
    listed = advice_of(diagnosis)[:top]
    if not listed:
        nothing = advice_lines.nothing_to_do(diagnosis)
        return [nothing, ""] if nothing else []
    lines = [f"| {advice_lines.heading(diagnosis)} | | why, and how |", "|---|---|---|"]
    for advised in listed:
        told = (
            advice_lines.reason_of(advised), advice_lines.change_of(advised),
            advice_lines.trial_of(advised, diagnosis), advice_lines.words_of(advised),
        )  # fmt: skip
        name, saving = advice_lines.title_of(advised), advice_lines.saving_of(advised, diagnosis)
        lines.append(f"| {escape(name)} | {saving} | {escape('; '.join(filter(None, told)))} |")
    return [*lines, ""]


def escape(text: str) -> str:
    """The text with nothing in it that is markup."""
    return _SPECIAL.sub(r"\\\1", text)


def _table(table: TextTable) -> list[str]:
    details = any(row.detail for row in table.rows)
    headers = [column.header for column in table.columns] + (["where"] if details else [])
    rules = ["--:" if column.number else "---" for column in table.columns]
    lines = [f"<details><summary>{table.title}</summary>", ""]
    lines.append("| " + " | ".join(headers) + " |")
    lines.append("|" + "|".join(rules + (["---"] if details else [])) + "|")
    for row in table.rows:
        cells = [*row.cells, row.detail] if details else list(row.cells)
        lines.append("| " + " | ".join(escape(cell) for cell in cells) + " |")
    if table.left_out:
        lines += ["", f"and {table.left_out} more"]
    return [*lines, "", "</details>"]
