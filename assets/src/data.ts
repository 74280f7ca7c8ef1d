// The embedded columns (gobrrr/reports/html/pack.py) as rows.

import type { Scale } from "./quantities";

interface Texts {
  values: string[];
  index: number[];
}
type Columns = Record<string, Texts | (number | null)[]> & { length: number };

export interface Op {
  row: number;
  name: string;
  shapes: string | null;
  dtypes: string | null;
  regime: string;
  dtype: string | null;
  memory_level: string | null;
  unit: string | null;
  op_class: string | null;
  module: string | null;
  source: string | null;
  phase: string | null;
  count: number | null;
  time_s: number;
  kernel_s: number | null;
  fixed_s: number | null;
  flops: number | null;
  bytes: number | null;
  intensity: number | null;
  flops_per_s: number | null;
  bytes_per_s: number | null;
  roof_s: number | null;
  roof_fraction: number | null;
  below_s: number | null;
  page_faults_s: number | null;
}

export interface Group {
  row: number;
  name: string | null;
  phase: string | null;
  regime: string | null;
  count: number | null;
  time_s: number;
  compute_s: number;
  memory_s: number;
  overhead_s: number;
  unmodelled_s: number;
  flops: number | null;
  bytes: number | null;
  module_class: string | null;
}

export interface Ceiling {
  name: string;
  value: number | null;
  unit: string;
  how: string;
  source: string;
}

export interface Level {
  name: string;
  capacity: number | null;
  rates: [number | null, number | null][];
}

export interface Report {
  step_s: number;
  scale: Scale;
  device: { kind: string };
  ops: Op[];
  modules: Group[];
  /** The modules with repeated blocks joined, `blocks.*.attn`. */
  joined: Group[];
  lines: Group[];
  ceilings: Ceiling[];
  levels: Level[];
  /** Meanings of terms in headers. */
  terms: Record<string, string>;
  causes: Record<string, string>;
  classes: Record<string, string>;
}

export const REGIMES = ["compute", "memory", "overhead", "unmodelled"] as const;

/** A regime that has a colour. */
export function regimeOf(name: string | null): string {
  return (REGIMES as readonly string[]).includes(name ?? "") ? (name as string) : "unmodelled";
}

function rows<Row>(columns: Columns): Row[] {
  const made: Record<string, unknown>[] = [];
  for (let row = 0; row < columns.length; row++) made.push({ row });
  for (const [name, column] of Object.entries(columns)) {
    if (typeof column === "number") continue;
    if (Array.isArray(column)) made.forEach((row, i) => (row[name] = column[i]));
    else made.forEach((row, i) => (row[name] = column.values[column.index[i]] ?? null));
  }
  return made as Row[];
}

export function readReport(text: string): Report {
  const data = JSON.parse(text);
  const report: Report = {
    ...data,
    ops: rows<Op>(data.ops),
    modules: rows<Group>(data.modules),
    joined: rows<Group>(data.joined),
    lines: rows<Group>(data.lines),
  };
  for (const op of report.ops) {
    op.name ??= "(no name)";
    op.time_s ??= 0;
    op.regime ??= "unmodelled";
  }
  for (const group of [...report.modules, ...report.joined, ...report.lines]) group.time_s ??= 0;
  return report;
}
