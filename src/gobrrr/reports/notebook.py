"""The report in a notebook cell: verdict, split and what would help most, with the page beneath.

The page of the HTML report stands in a frame of its own. That keeps its styles and the notebook's
apart, and lets its one script draw the charts without reaching the notebook.
"""

from __future__ import annotations

from itertools import chain, islice

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.fix_table import finding_groups
from gobrrr.reports.html import render_page, report_html
from gobrrr.reports.html.view import page_of
from gobrrr.reports.sentences import finding_lines

HEIGHT_PX = 720
_FINDINGS = 3


def notebook_html(diagnosis: Diagnosis) -> str:
    """The short view, and an ``iframe`` that holds the whole page; nothing is fetched."""
    first = islice(chain(*(found for _, found in finding_groups(diagnosis))), _FINDINGS)
    return render_page(
        "inline.html.j2",
        page=page_of(diagnosis),
        findings=[finding_lines(finding, diagnosis) for finding in first],
        report=report_html(diagnosis),
        height=HEIGHT_PX,
    )
