"""All outcomes on one page: verdicts, plots and numbers in a single file that opens offline."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypedDict

from gobrrr.lab.experiment import ARTICLE, Judged, Outcome
from gobrrr.timeline.quantities import count, percent, quantity, significant
from gobrrr.timeline.quantities import time_text as seconds_text


class _Section(TypedDict):
    outcome: Outcome
    plot: str | None
    claims: list[dict[str, str]]


def render_page(outcomes: Sequence[Outcome], folder: Path, not_run: Sequence[str] = ()) -> str:
    """The page, in HTML. Plots are read from ``<folder>/<name>.png`` and put inside."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(
        (files("gobrrr.lab") / "page.html.jinja").read_text(encoding="utf-8")
    )
    sections: list[_Section] = [
        {
            "outcome": outcome,
            "plot": _inline_plot(folder / f"{outcome.name}.png") if outcome.rows else None,
            "claims": [_claim_texts(claim) for claim in outcome.claims],
        }
        for outcome in outcomes
    ]
    counts = {
        verdict: sum(claim.verdict == verdict for o in outcomes for claim in o.claims)
        for verdict in ("holds", "does not hold here", "cannot tell")
    }
    return template.render(
        sections=sections,
        counts=counts,
        not_run=list(not_run),
        article=ARTICLE,
        device=outcomes[0].device if outcomes else "",
        date=outcomes[0].date if outcomes else "",
        environment=outcomes[0].environment if outcomes else {},
        duration=seconds_text(sum(outcome.duration_s for outcome in outcomes)),
    )


def _inline_plot(path: Path) -> str | None:
    try:
        return base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:
        return None


def _claim_texts(claim: Judged) -> dict[str, str]:
    return {
        "claim": claim.claim,
        "article": claim.article,
        "source": claim.source,
        "quantity": claim.quantity,
        "here": measured_text(claim),
        "holds_if": range_text(claim),
        "verdict": claim.verdict,
        "because": claim.because,
        "kind": {"holds": "yes", "does not hold here": "no"}.get(claim.verdict, "open"),
    }


# Units that are things: they have no prefixes, and of one there is no plural.
_COUNTED = frozenset(("kernels", "operators"))


def value_text(value: float | None, unit: str) -> str:
    """A quantity of a claim as people read it; a ratio has the unit ``""`` or ``x``."""
    if unit == "x":
        return f"{significant(value)}x"
    if unit == "%":
        return percent(None if value is None else value / 100, 1)
    if unit in _COUNTED:
        number = count(value)
        return f"{number} {unit.removesuffix('s') if number == '1' else unit}"
    return quantity(value, unit) if unit else significant(value)


def measured_text(claim: Judged) -> str:
    """``"2.31x (2.28x to 2.35x)"``, or a dash where it was not measured."""
    if claim.value is None:
        return "-"
    value, low, high = (value_text(v, claim.unit) for v in (claim.value, claim.low, claim.high))
    return value if low == high else f"{value} ({low} to {high})"


def range_text(claim: Judged) -> str:
    """In which range the claim holds."""
    if claim.least is not None and claim.most is not None:
        return f"{value_text(claim.least, claim.unit)} to {value_text(claim.most, claim.unit)}"
    if claim.least is not None:
        return f"at least {value_text(claim.least, claim.unit)}"
    if claim.most is not None:
        return f"at most {value_text(claim.most, claim.unit)}"
    return "-"
