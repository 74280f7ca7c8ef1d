// The same rules as gobrrr/reports/quantities.py: one time unit per report, SI prefixes of 1000.

export interface Scale {
  unit: string;
  unit_s: number;
  decimals: number;
}

export const UNKNOWN = "-";
type Maybe = number | null | undefined;
const known = (value: Maybe): value is number => value != null && Number.isFinite(value);

const PREFIXES: [number, string][] = [
  [1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""],
];

export function significant(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "0";
  const digits = 2 - Math.floor(Math.log10(Math.abs(Number(value.toPrecision(3)))));
  return value.toFixed(Math.min(Math.max(digits, 0), 6));
}

export function si(value: Maybe, unit = ""): string {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return `0 ${unit}`.trim();
  const size = Math.abs(value);
  const [factor, prefix] = PREFIXES.find(([least]) => size >= 0.9995 * least) ?? [1, ""];
  return `${significant(value / factor)} ${prefix}${unit}`.trim();
}

export function timeNumber(seconds: Maybe, scale: Scale): string {
  if (!known(seconds)) return UNKNOWN;
  const value = seconds / scale.unit_s;
  const least = 10 ** -scale.decimals;
  if (value > 0 && value < least / 2) return `<${least.toFixed(scale.decimals)}`;
  return value.toFixed(scale.decimals);
}

/** A time in its own unit, three significant digits. */
export function timeText(seconds: Maybe): string {
  if (!known(seconds)) return UNKNOWN;
  if (seconds === 0) return "0 s";
  const size = Math.abs(seconds);
  const units: [number, string][] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
  const [factor, unit] = units.find(([least]) => size >= 0.9995 * least) ?? [1e-9, "ns"];
  return `${significant(seconds / factor)} ${unit}`;
}

export function percent(fraction: Maybe, decimals = 0): string {
  if (!known(fraction)) return UNKNOWN;
  const least = 10 ** -decimals;
  if (fraction > 0 && 100 * fraction < least / 2) return `<${least.toFixed(decimals)} %`;
  return `${(100 * fraction).toFixed(decimals)} %`;
}

export function count(value: Maybe): string {
  if (!known(value)) return UNKNOWN;
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}
