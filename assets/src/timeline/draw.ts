// Draws rows of spans on a canvas. What is narrower than a pixel shares one with its neighbours,
// so that a frame costs as much as the picture is wide, plus one look at each span in view.

import { firstAfter, type Lane, type Row, type Spans } from "./spans";

export const ROW = 17;
const GAP = 9;
const TITLE = 16;
const CHARACTER = 6.1;

export interface View {
  /** Times at the left and right edge, in the spans' unit. */
  from: number;
  to: number;
  width: number;
}

export interface Palette {
  ink: string;
  muted: string;
  line: string;
  page: string;
  panel: string;
  colourOf: (lane: Lane, span: number) => string;
  /** Ink that reads on a colour. */
  inkOn: (colour: string) => string;
  label: (lane: Lane, span: number) => string;
  dimmed: (lane: Lane, span: number) => boolean;
}

export interface Placed {
  lane: Lane;
  top: number;
}

export function placeLanes(lanes: Lane[], top: number): { placed: Placed[]; height: number } {
  const placed: Placed[] = [];
  for (const lane of lanes) {
    placed.push({ lane, top: top + TITLE });
    top += TITLE + lane.rows.length * ROW + GAP;
  }
  return { placed, height: top };
}

export function drawLanes(
  context: CanvasRenderingContext2D,
  placed: Placed[],
  view: View,
  palette: Palette,
): void {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const { lane, top } of placed) {
    context.globalAlpha = 1;
    context.fillStyle = palette.muted;
    const more = lane.hiddenRows ? ` (${lane.hiddenRows} deeper rows not drawn)` : "";
    context.fillText(lane.title + more, 4, top - TITLE / 2);
    lane.rows.forEach((row, depth) => drawRow(context, lane, row, top + depth * ROW, view, palette));
  }
  context.globalAlpha = 1;
}

function drawRow(
  context: CanvasRenderingContext2D,
  lane: Lane,
  row: Row,
  top: number,
  view: View,
  palette: Palette,
): void {
  const { start, end } = lane.spans;
  const scale = view.width / (view.to - view.from);
  const height = ROW - 2;
  let i = firstAfter(row, end, view.from);
  while (i < row.length) {
    const span = row[i];
    if (start[span] >= view.to) break;
    const left = (start[span] - view.from) * scale;
    const right = (end[span] - view.from) * scale;
    if (right - left >= 1) {
      i++;
      fillSpan(context, lane, span, Math.max(left, -1), Math.min(right, view.width + 1), top, height, palette);
      continue;
    }
    // The longest span of this pixel gives the colour, the time covered how solid it is.
    const pixel = Math.floor(left);
    let longest = span;
    let covered = 0;
    for (; i < row.length; i++) {
      const next = row[i];
      const a = (start[next] - view.from) * scale;
      const b = (end[next] - view.from) * scale;
      if (a >= pixel + 1 || b - a >= 1) break;
      covered += b - a;
      if (end[next] - start[next] > end[longest] - start[longest]) longest = next;
    }
    context.globalAlpha = (palette.dimmed(lane, longest) ? 0.25 : 1) * Math.min(1, 0.35 + 0.65 * covered);
    context.fillStyle = palette.colourOf(lane, longest);
    context.fillRect(pixel, top, 1, height);
  }
}

function fillSpan(
  context: CanvasRenderingContext2D,
  lane: Lane,
  span: number,
  left: number,
  right: number,
  top: number,
  height: number,
  palette: Palette,
): void {
  const colour = palette.colourOf(lane, span);
  context.globalAlpha = palette.dimmed(lane, span) ? 0.25 : 1;
  context.fillStyle = colour;
  const width = right - left;
  // Neighbours of one colour stay apart where there is room for the gap.
  context.fillRect(left, top, width > 3 ? width - 1 : width, height);
  const room = Math.floor((width - 8) / CHARACTER);
  if (room < 3) return;
  const text = palette.label(lane, span);
  context.fillStyle = palette.inkOn(colour);
  context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, Math.max(left, 0) + 4, top + height / 2 + 0.5);
}

/** The span under a point; among those narrower than `slack` pixels the nearest. */
export function spanAt(
  placed: Placed[],
  x: number,
  y: number,
  view: View,
): { lane: Lane; span: number } | null {
  const scale = (view.to - view.from) / view.width;
  const time = view.from + x * scale;
  const slack = 3 * scale;
  for (const { lane, top } of placed) {
    const row = lane.rows[Math.floor((y - top) / ROW)];
    if (!row || y < top) continue;
    const { start, end } = lane.spans;
    let best = -1;
    let least = slack;
    for (let i = firstAfter(row, end, time - slack); i < row.length; i++) {
      const span = row[i];
      if (start[span] > time + slack) break;
      const away = Math.max(start[span] - time, time - end[span], 0);
      if (away === 0 && end[span] - start[span] > 0) return { lane, span };
      if (away < least) [best, least] = [span, away];
    }
    if (best >= 0) return { lane, span: best };
  }
  return null;
}

/** Times at round numbers, about one per 110 pixels; `unit_s` is the spans' unit in seconds. */
export function roundTimes(view: View, unit_s: number): number[] {
  const seconds = (view.to - view.from) * unit_s;
  const rough = (seconds * 110) / view.width;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const times: number[] = [];
  const first = Math.ceil((view.from * unit_s) / step);
  for (let i = first; i * step < view.to * unit_s && times.length < 100; i++) times.push(i * step);
  return times;
}

/** The share of each pixel's time that is covered, for the overview. */
export function coverage(spans: Spans, end: number, width: number): Float64Array {
  const filled = new Float64Array(width);
  const scale = width / end;
  for (let i = 0; i < spans.start.length; i++) {
    const a = spans.start[i] * scale;
    const b = Math.min(spans.end[i] * scale, width);
    for (let pixel = Math.floor(a); pixel < b; pixel++)
      filled[pixel] += Math.min(b, pixel + 1) - Math.max(a, pixel);
  }
  return filled;
}
