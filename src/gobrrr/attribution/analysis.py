"""What lies behind a diagnosis of steps that were measured here."""

from __future__ import annotations

from gobrrr.attribution.cpu.run import CpuAnalysis
from gobrrr.attribution.device.run import DeviceAnalysis

Analysis = CpuAnalysis | DeviceAnalysis
