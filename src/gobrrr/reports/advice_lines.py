"""What to do, in a report: each piece of advice with its saving, its reason and how to try it."""

from __future__ import annotations

import textwrap

from gobrrr.diagnosis.advice import Advice
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.next_command import with_program
from gobrrr.timeline.names import plain_name, short_source
from gobrrr.timeline.quantities import percent

HEADING = "What to do, by what it saves of the wall time"
UNRANKED = "What to do (what each saves cannot be told from these times)"
NOTHING = "Nothing that is known here saves 3 % of the wall time or more."
# Places of one finding that are named.
_PLACES = 2


def heading(diagnosis: Diagnosis) -> str:
    """What stands over the list; after a search it holds what was not tried."""
    text = UNRANKED if diagnosis.timed_on_busy_machine else HEADING
    return text if diagnosis.fixes is None else f"{text} (not tried)"


def nothing_to_do(diagnosis: Diagnosis) -> str:
    """Said in the list's place where the fixes were considered and it is empty."""
    considered = diagnosis.untried is not None and diagnosis.fixes is None
    return NOTHING if considered else ""


def title_of(advised: Advice) -> str:
    """What happens, or what to change."""
    finding = advised.finding
    title = plain_name(finding.title or finding.fix)
    return f"{title}, at lower precision" if finding.precision else title


def saving_of(advised: Advice, diagnosis: Diagnosis) -> str:
    """``saves 13 % (0 % to 32 %)``; or what it takes where the saving is unknown.

    Of times that are too long no interval is known.
    """
    saved = advised.saved
    if saved is not None:
        if diagnosis.too_long:
            return f"saves {percent(saved.expected)} of these steps (interval unknown)"
        interval = f"{percent(saved.low)} to {percent(saved.high)}"
        return f"saves {percent(saved.expected)} ({interval})"
    return "" if advised.taken is None else f"takes {percent(advised.taken)}"


def reason_of(advised: Advice) -> str:
    """``train.py:12: 64 ops ...``: where, and the arithmetic."""
    finding = advised.finding
    because = finding.because[:1].upper() + finding.because[1:]
    places = [short_source(source) for source in finding.sources[:_PLACES]]
    at = ", ".join(place for place in places if place not in because)
    return plain_name(f"{at}: {because}" if at and because else at or because, 2000)


def change_of(advised: Advice) -> str:
    """``change: ...``, where it is told as code or words; empty where a command makes it."""
    remedy = advised.finding.remedy
    return f"change: {plain_name('; '.join(remedy.splitlines()), 2000)}" if remedy else ""


def change_lines(advised: Advice, width: int) -> list[str]:
    """The same in lines, whole, so that it can be copied: code as it is, words at blanks alone."""
    remedy = advised.finding.remedy
    if not remedy:
        return []
    if not advised.finding.is_cause:
        code = [plain_name(line, 2000) for line in remedy.splitlines()]
        return ["change:", *(f"  {line}" for line in code)] if code[1:] else [change_of(advised)]
    return textwrap.wrap(change_of(advised), width, break_long_words=False, break_on_hyphens=False)


def trial_of(advised: Advice, diagnosis: Diagnosis) -> str:
    """``try: gobrrr fix --only compile train.py``; empty where no command tries it."""
    verify = advised.finding.verify
    return f"try: {plain_name(with_program(verify, diagnosis), 1000)}" if verify else ""


def words_of(advised: Advice) -> str:
    """What people search for; empty but for a known cause."""
    words = advised.finding.words
    return f"search for: {', '.join(map(plain_name, words))}" if words else ""
