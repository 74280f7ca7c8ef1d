"""The report in a notebook cell: the page of the HTML report itself, in a frame of its own.

The frame keeps the page's styles and the notebook's apart, and lets its one script draw the charts
without reaching the notebook.
"""

from __future__ import annotations

from html import escape

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.html import report_html

HEIGHT_PX = 720


def notebook_html(diagnosis: Diagnosis) -> str:
    """An ``iframe`` that holds the whole page; nothing is fetched."""
    return (
        f'<iframe srcdoc="{escape(report_html(diagnosis))}" sandbox="allow-scripts" '
        f'width="100%" height="{HEIGHT_PX}" style="border:0" '
        f'title="{escape(str(diagnosis.source.get("name") or "gobrrr"))}"></iframe>'
    )
