"""Images that the main process decodes."""

from __future__ import annotations

import re

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.causes.noted import noted, starts_with, text_of
from gobrrr.diagnosis.facts import Facts
from gobrrr.observe.program_facts import NoteFact
from gobrrr.timeline.quantities import percent

_DECODERS = ("PIL", "torchvision.io", "imageio", "skimage.io", "cv2")
# Functions of C, of which no frame tells.
_CALLS = re.compile(r"\b(imread|imdecode|decode_(jpeg|png|image)|Image\.open|read_image)\s*\(")
_WRITES = re.compile(r"\.(save|show)\s*\(|\bimwrite\s*\(|\bsave_image\s*\(|write_(jpeg|png)\s*\(")


def _decodes(note: NoteFact, facts: Facts) -> bool:
    text = text_of(note.line)
    if not note.line or _WRITES.search(text) or note.callee.endswith((".save", ".imwrite")):
        return False
    if _CALLS.search(text):
        return True
    # Pictures are made as well, and shown, by what loads no data.
    loads = bool(facts.loaders) or starts_with(note.within, "torch.utils.data")
    return loads and starts_with(note.inner, *_DECODERS)


def find(facts: Facts) -> Found | None:
    """That images are decoded in the main process, for a share of the wall time."""
    found = noted(facts, lambda note: _decodes(note, facts))
    if found is None or (facts.loaders and all(loader.workers for loader in facts.loaders)):
        return None
    return saves_of_wall(
        f"the main process decodes images in {percent(found.share)} of the wall time "
        f"({found.count} of {facts.program.notes_taken if facts.program else 0} looks)",
        found.lines, 0.3 * found.low, 0.8 * found.share, found.high, found.share,
    )  # fmt: skip


IMAGE_DECODING = Cause(
    name="image_decoding",
    title="images are decoded in the main process (num_workers)",
    words=("image decoding", "PIL slow DataLoader", "num_workers", "cache decoded images",
           "torchvision.io.decode_jpeg"),
    find=find,
    remedy="DataLoader(..., num_workers=4, persistent_workers=True), or images decoded once "
    "and kept",
    verified_by="loader_workers",
)  # fmt: skip
