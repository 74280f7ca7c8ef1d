"""Logging, histograms, files that are written through and progress bars in each step."""

from __future__ import annotations

import re
from collections.abc import Callable

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.causes.noted import most_saved, noted, place_of, starts_with, text_of
from gobrrr.causes.source_text import function_text
from gobrrr.diagnosis.facts import Facts
from gobrrr.observe.program_facts import NoteFact
from gobrrr.timeline.quantities import percent

_BARS = (
    "tqdm", "rich.progress", "progressbar", "alive_progress", "fastprogress", "enlighten",
    "lightning.pytorch.callbacks.progress", "pytorch_lightning.callbacks.progress",
)  # fmt: skip
_LOGGERS = (
    "logging", "torch.utils.tensorboard", "tensorboardX", "wandb", "mlflow", "comet_ml", "neptune",
    "clearml", "loguru", "structlog", "aim", "json.dump", "json.dumps", "json.encoder",
)  # fmt: skip
_SYNCED = re.compile(r"\bf(data)?sync\s*\(|\bos\.sync\s*\(")
_HISTOGRAM = re.compile(r"hist(ogram(dd)?|c)?\s*\(")
# A carriage return that is written: who draws a bar of one's own.
_REDRAWN = re.compile(r"""(print|write)\s*\(.*(\\r|\\x1b\[|\\033\[)""")
_MOST_OF_BAR = 25
_READS = re.compile(r"\.(item|cpu|numpy|tolist)\s*\(")
# Not ``torch.log``.
_WRITES = re.compile(
    r"\b(print|write(lines|row|rows)?|flush|dump|savetxt|log_metrics|log_dict|add_scalars?)\s*\("
    r"|\b(self|wandb|run|logger|log|writer|experiment|fabric|trainer)\.(log|info|debug|warning)\s*\("
)


def _synced(note: NoteFact) -> bool:
    return bool(_SYNCED.search(text_of(note.line)))


def _histogram(note: NoteFact) -> bool:
    return note.callee.endswith("histogram") or bool(_HISTOGRAM.search(text_of(note.line)))


def _bar(note: NoteFact) -> bool:
    return starts_with(note.inner, *_BARS) or _redraws(note.line)


def _redraws(line: str) -> bool:
    """Whether a line writes over the line of a terminal, or is in a small function that does."""
    if _REDRAWN.search(text_of(line)):
        return True
    where = place_of(line)
    text = "" if where is None else function_text(where.path, where.number)
    return text.count("\n") <= _MOST_OF_BAR and bool(_REDRAWN.search(text))


def _logged(note: NoteFact) -> bool:
    if not note.line or _synced(note) or _histogram(note) or _bar(note):
        return False
    if starts_with(note.within, "torch.utils.data"):
        # What a data set does is loading.
        return False
    return starts_with(note.callee, *_LOGGERS) or bool(_WRITES.search(text_of(note.line)))


def _waits(note: NoteFact, facts: Facts) -> bool:
    """Whether a line reads a value of a device's, and waits for it rather than writes."""
    return facts.on_gpu and bool(_READS.search(text_of(note.line)))


def _finder(what: str, wanted: Callable[[NoteFact], bool]) -> Callable[[Facts], Found | None]:
    def find(facts: Facts) -> Found | None:
        found = noted(facts, lambda note: wanted(note) and not _waits(note, facts))
        if found is None or facts.program is None:
            return None
        most = most_saved(facts)
        share = min(found.share, most)
        waits = ", waits for the device included," if share < found.share else ""
        return saves_of_wall(
            f"{what} in {percent(found.share)} of the wall time{waits} "
            f"({found.count} of {facts.program.notes_taken} looks at the main thread)",
            found.lines, 0.8 * found.low, 0.9 * share, min(found.high, most), share,
        )  # fmt: skip

    return find


FSYNC_EACH_STEP = Cause(
    name="fsync_each_step",
    title="a file is written through to the disk in each step (fsync)",
    words=("fsync", "os.fsync slow", "flush every step", "logging to network disk"),
    find=_finder("fsync waits for the disk", _synced),
    remedy="no fsync in the loop; flush every hundred steps",
)
HISTOGRAMS_EACH_STEP = Cause(
    name="histograms_each_step",
    title="histograms are made in each step (add_histogram)",
    words=("add_histogram slow", "tensorboard histogram", "wandb.watch slow"),
    find=_finder("histograms of tensors are made", _histogram),
    remedy="if step % 500 == 0: writer.add_histogram(...)",
)
LOGGING_EACH_STEP = Cause(
    name="logging_each_step",
    title="each step writes logs (logging, print)",
    words=("logging slows training", "print in training loop", "log_every_n_steps", "wandb slow"),
    find=_finder("the step writes logs", _logged),
    remedy="if step % 50 == 0: log(...)",
)
PROGRESS_BAR = Cause(
    name="progress_bar",
    title="a progress bar is drawn in each step (tqdm, mininterval)",
    words=("tqdm slow", "tqdm mininterval", "refresh_rate", "set_postfix refresh"),
    find=_finder("a progress bar is drawn", _bar),
    remedy="tqdm(loader, mininterval=1.0), set_postfix(..., refresh=False)",
)
