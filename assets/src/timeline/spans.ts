// The packed columns (gobrrr/reports/html/pack.py) as typed arrays, and rows of spans to draw.

import { gunzipSync } from "fflate";

export interface Packed {
  end: number;
  unit_ns: number;
  names: string[];
  regimes: string[];
  causes: string[];
  host_kinds: string[];
  threads: number[];
  streams: number[];
  layout: { lane: LaneKind; column: string; bytes: 1 | 2 | 4; length: number }[];
  data: string;
}
export type LaneKind = "host" | "kernel" | "idle";

/** Spans of one kind, sorted by start; times in units of `Packed.unit_ns`. */
export interface Spans {
  start: Float64Array;
  end: Float64Array;
  kind: Uint32Array;
  name: Uint32Array;
  lane: Uint32Array;
}

export function unpack(packed: Packed): Record<LaneKind, Spans> {
  // Not the browser's own stream, which ends only after a page that is captured or printed at once.
  const bytes = gunzipSync(Uint8Array.from(atob(packed.data), (character) => character.charCodeAt(0)));
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  const columns: Record<string, Record<string, Uint32Array>> = { host: {}, kernel: {}, idle: {} };
  let offset = 0;
  for (const { lane, column, bytes: size, length } of packed.layout) {
    const part = buffer.slice(offset, (offset += size * length));
    const values = size === 1 ? new Uint8Array(part) : size === 2 ? new Uint16Array(part) : new Uint32Array(part);
    columns[lane][column] = values instanceof Uint32Array ? values : Uint32Array.from(values);
  }
  return { host: spansOf(columns.host), kernel: spansOf(columns.kernel), idle: spansOf(columns.idle) };
}

function spansOf(columns: Record<string, Uint32Array>): Spans {
  const length = columns.start?.length ?? 0;
  const start = new Float64Array(length);
  const end = new Float64Array(length);
  let at = 0;
  for (let i = 0; i < length; i++) {
    at += columns.start[i];
    start[i] = at;
    end[i] = at + columns.duration[i];
  }
  const none = new Uint32Array(length);
  return { start, end, kind: columns.kind ?? none, name: columns.name ?? none, lane: columns.lane ?? none };
}

/** One row of a lane: spans that do not overlap, by position in `Spans`, in order of start. */
export type Row = Int32Array;

export interface Lane {
  kind: LaneKind;
  title: string;
  spans: Spans;
  rows: Row[];
  /** Rows beyond those drawn. */
  hiddenRows: number;
}

/** Nests the spans that `keep` accepts; a span that outlasts its parent is drawn under it anyway. */
export function nest(
  spans: Spans,
  lane: number,
  keep: (kind: number) => boolean,
  mostRows: number,
): { rows: Row[]; hiddenRows: number } {
  const rows: number[][] = [];
  const open: number[] = [];
  let deepest = 0;
  for (let i = 0; i < spans.start.length; i++) {
    if (spans.lane[i] !== lane || !keep(spans.kind[i])) continue;
    while (open.length && open[open.length - 1] <= spans.start[i]) open.pop();
    const depth = open.length;
    open.push(depth ? Math.min(open[depth - 1], spans.end[i]) : spans.end[i]);
    deepest = Math.max(deepest, depth + 1);
    if (depth < mostRows) (rows[depth] ??= []).push(i);
  }
  return { rows: rows.map((row) => Int32Array.from(row)), hiddenRows: Math.max(0, deepest - mostRows) };
}

/** Packs spans that may overlap (streams) into as few rows as it takes, first fit. */
export function pack(spans: Spans, lane: number, mostRows: number): { rows: Row[]; hiddenRows: number } {
  const rows: number[][] = [];
  const ends: number[] = [];
  let lost = 0;
  for (let i = 0; i < spans.start.length; i++) {
    if (spans.lane[i] !== lane) continue;
    let row = ends.findIndex((end) => end <= spans.start[i]);
    if (row < 0) row = ends.length < mostRows ? ends.length : -1;
    if (row < 0) {
      lost = 1;
      continue;
    }
    ends[row] = Math.max(ends[row] ?? 0, spans.end[i]);
    (rows[row] ??= []).push(i);
  }
  return { rows: rows.map((row) => Int32Array.from(row)), hiddenRows: lost };
}

/** First position in `row` whose span ends after `time`. */
export function firstAfter(row: Row, ends: Float64Array, time: number): number {
  let [low, high] = [0, row.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[row[middle]] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}
