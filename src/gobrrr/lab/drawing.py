"""The look that all plots share. matplotlib is imported when the first one is drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import si, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart
# (https://jfly.uni-koeln.de/color/).
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, GOLD, GREY = "#CC79A7", "#56B4E9", "#E69F00", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, GOLD)
# The article's figures and readings, in every plot.
ARTICLE_COLOUR = "#8A2BE2"
REGIME_COLOURS = {"compute": BLUE, "memory": ORANGE, "overhead": GREY, "unmodelled": "#DDDDDD"}

_STYLE = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",
    # Ids inside an SVG are hashes with a random salt otherwise.
    "svg.hashsalt": "gobrrr",
    "figure.constrained_layout.use": True,
}


def plots_possible() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


@contextmanager
def new_figure(width: float = 9.6, height: float = 4.4) -> Iterator[Figure]:
    """An empty figure in inches, without a window and outside pyplot's global state.

    Raises InputError without matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'gobrrr[lab]'") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def title(figure: Figure, text: str, device: str) -> None:
    """The plot's headline, with the device it is of."""
    figure.suptitle(f"{text} · {device}", x=0.01, ha="left", fontsize=12, fontweight="bold")


def ceiling_line(axes: Axes, value: float | None, label: str, colour: str = "black") -> None:
    """A horizontal line with its name on it; nothing where the ceiling is unknown."""
    if value is None:
        return
    axes.axhline(value, color=colour, linestyle="--", linewidth=1.1)
    axes.annotate(
        label, (1.0, value), xycoords=("axes fraction", "data"), xytext=(-3, 3),
        textcoords="offset points", ha="right", fontsize=8, color=colour,
    )  # fmt: skip


def article_span(axes: Axes, low: float, high: float, label: str) -> None:
    """The range of x where the article's plot has it."""
    axes.axvspan(low, high, color=ARTICLE_COLOUR, alpha=0.12, linewidth=0)
    axes.annotate(
        label, ((low * high) ** 0.5 if axes.get_xscale() == "log" else (low + high) / 2, 0.17),
        xycoords=("data", "axes fraction"), ha="center", fontsize=8, color=ARTICLE_COLOUR,
        va="top", bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
    )  # fmt: skip


def with_units(axis: Any, unit: str) -> None:
    """Tick labels such as 20 GFLOP/s instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: si(value, unit)))
    axis.set_minor_formatter(NullFormatter())


def plain_ticks(axis: Any, values: Sequence[float]) -> None:
    """Ticks at these values, as plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def time_ticks(axis: Any) -> None:
    """Tick labels such as 20 ms."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: _round_time(value)))
    axis.set_minor_formatter(NullFormatter())


def _round_time(seconds: float) -> str:
    number, unit = time_text(seconds).split(" ")
    return f"{float(number):g} {unit}"
