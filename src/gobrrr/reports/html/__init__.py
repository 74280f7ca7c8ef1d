"""The report as one HTML file that opens from disk: no request leaves it, and it needs no server.

Text, bars and tables are in the markup; charts are drawn by ``report.js`` (built from ``assets/``)
from columns embedded as JSON. A content security policy allows that one script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.glossary import Glosses
from gobrrr.reports.html.pack import chart_data, embed, timeline_data
from gobrrr.reports.html.view import page_of


def render(diagnosis: Diagnosis, *, top: int | None = None, by: Sequence[str] = ()) -> bytes:
    """The page as UTF-8. It holds every row, so ``top`` and ``by`` change nothing."""
    return report_html(diagnosis).encode()


def report_html(diagnosis: Diagnosis) -> str:
    """The whole page."""
    return render_page(
        "page.html.j2",
        page=page_of(diagnosis),
        data=Markup(embed(chart_data(diagnosis))),
        timeline=_timeline(diagnosis),
    )


def _timeline(diagnosis: Diagnosis) -> Markup | None:
    packed = timeline_data(diagnosis.timeline)
    return None if packed is None else Markup(embed(packed))


def render_page(template: str, **context: Any) -> str:
    """A template of this package with the script, the style and the policy that goes with them."""
    script = read_asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        _environment()
        .get_template(template)
        .render(
            script=Markup(script),
            style=Markup(read_asset("report.css")),
            script_hash=digest,
            gloss=Glosses(),
            **context,
        )
    )


@cache
def read_asset(name: str) -> str:
    """A file of this package, as text."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(read_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
