// Which ceilings make a roofline, and where they lie.

import type { Op, Report } from "./data";
import { si } from "./quantities";

export interface ComputeRoof {
  key: string;
  label: string;
  flops_per_s: number;
  how: string;
  used: boolean;
}

export interface MemoryRoof {
  key: string;
  label: string;
  bytes_per_s: number;
  how: string;
  used: boolean;
}

function short(name: string): string {
  return name.length > 32 ? `${name.slice(0, 31)}…` : name;
}

/** `matrix.<dtype>` and `vector.<dtype>`, highest first; used if an op computes there. */
export function computeRoofs(report: Report): ComputeRoof[] {
  const used = new Set(report.ops.map((op) => `${op.unit}.${op.dtype}`));
  return report.ceilings
    .filter((row) => /^(matrix|vector)\.[^.]+$/.test(row.name) && row.unit === "FLOP/s")
    .filter((row) => (row.value ?? 0) > 0)
    .map((row) => ({
      key: row.name,
      label: `${short(row.name.replace(".", " "))} ${si(row.value, "FLOP/s")}`,
      flops_per_s: row.value as number,
      how: row.how,
      used: used.has(row.name),
    }))
    .sort((a, b) => b.flops_per_s - a.flops_per_s);
}

/** One line per memory level, at the best of its rates; the last level always counts as used. */
export function memoryRoofs(report: Report): MemoryRoof[] {
  const used = new Set(report.ops.map((op) => op.memory_level));
  const roofs: MemoryRoof[] = [];
  const last = report.levels[report.levels.length - 1]?.name;
  for (const level of report.levels) {
    const best = Math.max(...level.rates.map(([, rate]) => rate ?? 0), 0);
    if (!(best > 0)) continue;
    const row = report.ceilings.find((ceiling) => ceiling.name.startsWith(`memory.${level.name}.`));
    roofs.push({
      key: `memory.${level.name}`,
      label: `${short(level.name)} ${si(best, "B/s")}`,
      bytes_per_s: best,
      how: row?.how ?? "",
      used: used.has(level.name) || level.name === last,
    });
  }
  return roofs.sort((a, b) => b.bytes_per_s - a.bytes_per_s);
}

/** An op's mark: its intensity and rate, or null without a known amount of work or time. */
export function place(op: Op): { x: number; y: number; bytesOnly: boolean } | null {
  if (!(op.time_s > 0) || op.flops === null) return null;
  if (op.flops > 0 && op.intensity !== null && op.intensity > 0 && (op.flops_per_s ?? 0) > 0)
    return { x: op.intensity, y: op.flops_per_s as number, bytesOnly: false };
  if (op.flops === 0 && (op.bytes_per_s ?? 0) > 0)
    return { x: 0, y: op.bytes_per_s as number, bytesOnly: true };
  return null;
}
