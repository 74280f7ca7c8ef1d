"""What stages of a predicted pipeline wait for each other, which no faster link would shorten."""

from __future__ import annotations

from typing import Any

from gobrrr.diagnosis.schema import Diagnosis


def waits_for_stages(diagnosis: Diagnosis) -> bool:
    """Whether most of the network's time is the stage's waiting for other stages."""
    found = _pipeline(diagnosis)
    if found is None:
        return False
    # The report of a pipeline describes its first stage.
    waited_s = float(found["bubble_s"][0])
    network_s = diagnosis.leaves["memory.network"] + diagnosis.leaves["memory.network_wait"]
    return waited_s > 0.5 * network_s


def shorter_waits(diagnosis: Diagnosis) -> str:
    """What shortens them, where they are most of the network's time; empty elsewhere."""
    found = _pipeline(diagnosis)
    if found is None or not waits_for_stages(diagnosis):
        return ""
    return (
        f"stages wait less for each other with more microbatches (here {found['microbatches']}) "
        "and with stages of equal length"
    )


def _pipeline(diagnosis: Diagnosis) -> dict[str, Any] | None:
    mesh = diagnosis.source.get("mesh")
    found = mesh.get("pipeline") if isinstance(mesh, dict) else None
    return found if isinstance(found, dict) else None
