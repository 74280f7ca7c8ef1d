"""What connects the devices of one host, from their data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.devices.datasheets.sheet import DeviceSheet

# Links of the devices' own, the fastest first; PCIe is what is left.
_OWN = ("nvlink", "xgmi", "ethernet")
# Both directions of 16 lanes in 10**9 bytes/s, as vendors state them -> generation of PCIe.
_GENERATIONS = {32.0: "3.0", 64.0: "4.0", 128.0: "5.0"}


@dataclass(frozen=True, slots=True)
class DeviceLink:
    """What a device sends to the others of its host through.

    Attributes:
        name: ``nvlink``, ``xgmi``, ``ethernet`` or ``pcie``.
        text: the same for a reader, with PCIe's generation.
        bytes_per_s: of one device in one direction, as its vendor states it.
        source: where that is stated.
    """

    name: str
    text: str
    bytes_per_s: float
    source: str


def device_link(sheet: DeviceSheet, ranks: int) -> DeviceLink | None:
    """The link between ``ranks`` devices of one host; ``None`` where the data sheet has none.

    Data sheets state both directions together: half of it is one direction. Devices that are wired
    to each other and not to a switch (``link_peers``) use the wires to those that take part: of a
    mesh of eight two devices have one seventh. A bridge of two serves two; more go over PCIe.
    """
    peers = sheet.link_peers
    for name in _OWN:
        figure = sheet.interconnect.get(name)
        if figure is None or (peers == 1 and ranks > 2):
            continue
        share = 1.0 if peers is None else min(1.0, (ranks - 1) / peers)
        return DeviceLink(name, name, figure.value / 2 * share, figure.source)
    figure = sheet.interconnect.get("pcie")
    if figure is None:
        return None
    generation = _GENERATIONS.get(figure.value / 1e9)
    text = "PCIe" if generation is None else f"PCIe {generation}"
    return DeviceLink("pcie", text, figure.value / 2, figure.source)
