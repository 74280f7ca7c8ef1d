// The roofline: log-log, in SVG, so that it prints and follows the theme.

import { scaleLog, type ScaleLogarithmic } from "d3-scale";
import { symbol, symbolCircle, symbolDiamond, symbolSquare, symbolTriangle } from "d3-shape";
import { regimeOf, type Op, type Report } from "./data";
import { describeOp } from "./describe";
import { byId, h, onWidth, s } from "./dom";
import { si, timeText } from "./quantities";
import { computeRoofs, memoryRoofs, place, type ComputeRoof, type MemoryRoof } from "./roofs";
import type { State } from "./state";
import { hideTip, showTip } from "./tooltip";

// A shape per regime, so that colour is not needed to tell them apart.
const SHAPES = {
  compute: symbolCircle,
  memory: symbolSquare,
  overhead: symbolTriangle,
  unmodelled: symbolDiamond,
} as const;
// How far each reaches from its middle, in radii of the circle of its area.
const REACH = { compute: 1, memory: 0.9, overhead: 1.56, unmodelled: 1.65 } as const;
const NEAR = 26;
// Ops that together take less than this share of the time may lie on the lower edge.
const EDGE_SHARE = 0.004;

interface Mark {
  op: Op;
  x: number;
  y: number;
  radius: number;
  node: SVGPathElement;
}

interface Frame {
  x: ScaleLogarithmic<number, number>;
  y: ScaleLogarithmic<number, number>;
  left: number;
  gutter: number;
  right: number;
  top: number;
  bottom: number;
}

export function startRoofline(host: HTMLElement, report: Report, state: State): void {
  const compute = computeRoofs(report);
  const memory = memoryRoofs(report);
  const roofs = [...memory, ...compute];
  const on = new Set(roofs.filter((roof) => roof.used).map((roof) => roof.key));
  if (!on.size) roofs.forEach((roof) => on.add(roof.key));
  const placed = report.ops.flatMap((op) => {
    const at = place(op);
    return at ? [{ op, at }] : [];
  });
  note(report, placed.length);
  if (!placed.length) {
    host.replaceChildren(h("p", { class: "none" }, "No op has a known amount of work to place."));
    return;
  }

  const most = Math.max(...placed.map(({ op }) => op.time_s));
  let marks: Mark[] = [];
  let width = 0;
  const redraw = () => width && draw();
  const svg = s("svg", { class: "roofline", tabindex: 0, role: "application" });
  svg.setAttribute(
    "aria-label",
    "Roofline. Left and right arrows go from op to op by time, Enter selects; the table below lists the same ops.",
  );
  host.replaceChildren(svg);
  if (roofs.length) byId("roofs").append(roofChoice(roofs, on, redraw));
  onWidth(host, (now) => {
    width = now;
    draw();
  });
  state.onFilter(redraw);
  state.onSelect(() => highlight());

  function draw(): void {
    const frame = frameOf(width);
    marks = [];
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${frame.bottom + 46}`);
    svg.setAttribute("height", String(frame.bottom + 46));
    drawAxes(svg, frame, width);
    const lines = drawRoofs(
      svg,
      frame,
      memory.filter((r) => on.has(r.key)),
      compute.filter((r) => on.has(r.key)),
    );
    const layer = s("g", { class: "marks" });
    // The largest first, so that small marks stay on top and can be reached.
    for (const { op, at } of [...placed].sort((a, b) => b.op.time_s - a.op.time_s)) {
      if (!state.passes(op)) continue;
      const radius = radiusOf(op);
      const x = at.bytesOnly ? frame.left + (frame.gutter - frame.left) / 2 : frame.x(at.x);
      const lowest = frame.y.domain()[0];
      const rate = at.bytesOnly ? at.y * frame.x.domain()[0] : at.y;
      // What is lower than the axis stands on it.
      const y = Math.min(frame.y(Math.max(rate, lowest)), frame.bottom - reachOf(op));
      const regime = regimeOf(op.regime) as keyof typeof SHAPES;
      const node = s("path", {
        d: symbol(SHAPES[regime], Math.PI * radius * radius)() ?? "",
        transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
        class: regime,
      });
      layer.append(node);
      marks.push({ op, x, y, radius, node });
    }
    // Names go on top of the marks, in a group of their own.
    const names = s("g", { class: "roof-names" });
    svg.append(layer, names, s("g", { class: "focus" }));
    placeNames(names, lines, marks, frame);
    highlight();
  }

  function reachOf(op: Op): number {
    return radiusOf(op) * REACH[regimeOf(op.regime) as keyof typeof REACH];
  }

  function radiusOf(op: Op): number {
    const largest = Math.max(12, Math.min(30, width / 32));
    return Math.max(2.6, largest * Math.sqrt(op.time_s / most));
  }

  function frameOf(width: number): Frame {
    const narrow = width < 560;
    const xs = placed.filter((p) => !p.at.bytesOnly).map((p) => p.at.x);
    const ridges = compute.flatMap((c) =>
      on.has(c.key) ? memory.filter((m) => on.has(m.key)).map((m) => c.flops_per_s / m.bytes_per_s) : [],
    );
    const smallest = Math.min(...xs, ...ridges, 1);
    const x0 = 10 ** Math.floor(Math.log10(Math.max(smallest * 0.7, 1e-4)));
    const x1 = Math.max(...xs, ...ridges.map((ridge) => ridge * 6), 10) * 2;
    const rates = placed.map((p) => [p.at.bytesOnly ? p.at.y * x0 : p.at.y, p.op.time_s]);
    rates.sort((a, b) => a[0] - b[0]);
    const total = rates.reduce((sum, [, time]) => sum + time, 0);
    let below = 0;
    let y0 = rates[0][0];
    for (const [rate, time] of rates) {
      y0 = rate;
      if ((below += time) > EDGE_SHARE * total) break;
    }
    const tops = compute.filter((c) => on.has(c.key)).map((c) => c.flops_per_s);
    const feet = memory.filter((m) => on.has(m.key)).map((m) => m.bytes_per_s * x0);
    const y1 = Math.max(...tops, rates[rates.length - 1][0], ...feet) * 2.2;
    const left = narrow ? 46 : 62;
    const widest = Math.max(0, ...placed.map((p) => (p.at.bytesOnly ? 2 * reachOf(p.op) + 4 : 0)));
    const gutter = left + (widest && Math.max(widest, narrow ? 34 : 54));
    const frame = { left, gutter, right: width - 12, top: 10, bottom: narrow ? 340 : 460 };
    // Marks have a size: each lies within the axes whole.
    const across = placed.filter((p) => !p.at.bytesOnly).map((p) => [p.at.x, reachOf(p.op)]);
    const up = placed.map((p) => [p.at.bytesOnly ? p.at.y * x0 : p.at.y, reachOf(p.op)]);
    const domain = [Math.min(y0, ...feet) / 1.6, y1];
    return {
      ...frame,
      x: scaleLog(withRoom([x0, x1], across, frame.right - gutter), [gutter, frame.right]),
      y: scaleLog(
        withRoom(domain, up.filter(([rate]) => rate >= y0), frame.bottom - frame.top),
        [frame.bottom, frame.top],
      ),
    };
  }

  function nearest(event: PointerEvent | MouseEvent): Mark | null {
    const box = svg.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best: Mark | null = null;
    let least = NEAR;
    for (const mark of marks) {
      // Inside a mark counts as nearer the nearer its centre is in its own size.
      const away = Math.hypot(mark.x - x, mark.y - y);
      const distance = away <= mark.radius ? (away / mark.radius) * 4 : away - mark.radius + 4;
      if (distance < least) [best, least] = [mark, distance];
    }
    return best;
  }

  function tell(mark: Mark, x: number, y: number): void {
    showTip(x, y, mark.op.name, describeOp(mark.op, report));
  }

  let hovered: Mark | null = null;
  svg.addEventListener("pointermove", (event) => {
    hovered = nearest(event);
    svg.style.cursor = hovered ? "pointer" : "";
    if (hovered) tell(hovered, event.clientX, event.clientY);
    else hideTip();
    highlight();
  });
  svg.addEventListener("pointerleave", () => {
    hovered = null;
    hideTip();
    highlight();
  });
  svg.addEventListener("click", (event) => {
    const mark = nearest(event);
    if (mark) state.select(mark.op, "roofline");
  });
  svg.addEventListener("keydown", (event) => {
    const order = [...marks].sort((a, b) => b.op.time_s - a.op.time_s);
    const current = hovered?.op ?? state.selected;
    const at = order.findIndex((mark) => mark.op === current);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && order.length) {
      event.preventDefault();
      hovered = order[Math.min(Math.max(at + step, 0), order.length - 1)];
      const box = svg.getBoundingClientRect();
      tell(hovered, box.left + hovered.x, box.top + hovered.y);
      highlight();
    } else if (event.key === "Enter" && hovered) {
      state.select(hovered.op, "roofline");
    }
  });
  svg.addEventListener("blur", hideTip);

  function highlight(): void {
    const selected = marks.find((mark) => mark.op === state.selected);
    for (const mark of marks) {
      mark.node.classList.toggle("selected", mark === selected);
      mark.node.classList.toggle("hovered", mark === hovered);
    }
    svg.classList.toggle("picking", !!selected);
    const focus = svg.querySelector(".focus");
    focus?.replaceChildren(...toRoof(hovered ?? selected));
  }

  /** A line from the mark up to the roof that gobrrr holds it against. */
  function toRoof(mark: Mark | null | undefined): SVGElement[] {
    const op = mark?.op;
    if (!mark || !op?.roof_s || !op.kernel_s || op.roof_s >= op.kernel_s) return [];
    const frame = frameOf(width);
    const up = Math.log10(op.kernel_s / op.roof_s);
    const domain = frame.y.domain().map(Math.log10);
    const y = mark.y - (up / (domain[1] - domain[0])) * (frame.bottom - frame.top);
    const words = s("text", { x: mark.x + 6, y: y + 11 }, `${timeText(op.roof_s)} at the ceiling`);
    if (mark.x > width - 160) {
      words.setAttribute("x", String(mark.x - 6));
      words.setAttribute("text-anchor", "end");
    }
    return [
      s("line", { x1: mark.x, x2: mark.x, y1: mark.y, y2: y }),
      s("line", { x1: mark.x - 7, x2: mark.x + 7, y1: y, y2: y }),
      words,
    ];
  }
}

/** A logarithmic domain, widened so that marks (value, reach) on so many pixels do not leave it. */
function withRoom(domain: number[], marks: number[][], pixels: number): number[] {
  let [low, high] = domain.map(Math.log10);
  // Room at one end takes a little of that at the other: a second time does for both.
  for (let again = 0; again < 2; again++) {
    for (const [value, reach] of marks) {
      const at = Math.log10(value);
      low = Math.min(low, (at * pixels - reach * high) / (pixels - reach));
      high = Math.max(high, (at * pixels - reach * low) / (pixels - reach));
    }
  }
  return [10 ** low, 10 ** high];
}

function note(report: Report, placed: number): void {
  const missing = report.ops.filter((op) => !place(op));
  const time = missing.reduce((sum, op) => sum + op.time_s, 0);
  const words: string[] = [];
  if (!report.ceilings.length) words.push("No ceilings are known for this device, so there is no roofline.");
  if (placed && missing.length && time > 0)
    words.push(
      `Without a known amount of work, so only in the table: ${missing.length} of ${report.ops.length} ops (${timeText(time)}).`,
    );
  if (report.ops.some((op) => op.flops === 0))
    words.push("Ops without arithmetic stand left of the axis, at the bytes they move per second.");
  byId("roofline-note").textContent = words.join(" ");
}

function drawAxes(svg: SVGElement, frame: Frame, width: number): void {
  const g = s("g", { class: "axes" });
  const { x, y, left, gutter, right, top, bottom } = frame;
  const decades = (domain: number[], room: number) => {
    const [low, high] = domain.map(Math.log10);
    const every = Math.max(1, Math.ceil((high - low) / Math.max(2, room)));
    const ticks: number[] = [];
    for (let e = Math.ceil(low); e <= high; e++) if (e % every === 0) ticks.push(10 ** e);
    return ticks;
  };
  for (const tick of decades(x.domain(), (right - gutter) / 54)) {
    g.append(s("line", { x1: x(tick), x2: x(tick), y1: top, y2: bottom }));
    // Beside the 0 of ops without arithmetic there is no room for another number.
    if (gutter > left && x(tick) - gutter < 16) continue;
    g.append(
      s("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, plainTick(tick)),
    );
  }
  for (const tick of decades(y.domain(), (bottom - top) / 40)) {
    g.append(
      s("line", { x1: left, x2: right, y1: y(tick), y2: y(tick) }),
      s("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, si(tick)),
    );
  }
  if (gutter > left) {
    const middle = (left + gutter) / 2;
    g.append(
      s("rect", { class: "gutter", x: left, y: top, width: gutter - left, height: bottom - top }),
      s("text", { x: middle, y: bottom + 17, "text-anchor": "middle" }, "0"),
    );
  }
  g.append(
    s("path", { class: "frame", d: `M${left},${top}V${bottom}H${right}` }),
    s("text", { class: "title", x: right, y: bottom + 37, "text-anchor": "end" },
      "arithmetic intensity, FLOP/B"),
    s("text", { class: "title title-y", x: left + 8, y: top + 10 }, width < 560 ? "FLOP/s" : "achieved, FLOP/s"),
  );
  svg.append(g);
}

function plainTick(value: number): string {
  return value >= 1e-4 && value < 1e4 ? String(Number(value.toPrecision(1))) : si(value);
}

/** A drawn ceiling from its lower left to its right end, with its name. */
interface Line {
  /** The longest first: where that does not fit, a shorter one may. */
  names: string[];
  from: [number, number];
  to: [number, number];
  /** Where its name is looked for first. */
  end: "left" | "right";
}

function drawRoofs(
  svg: SVGElement,
  frame: Frame,
  memory: MemoryRoof[],
  compute: ComputeRoof[],
): Line[] {
  const g = s("g", { class: "roofs" });
  const lines: Line[] = [];
  const { x, y, gutter, left, right, bottom } = frame;
  const [x0, x1] = x.domain();
  const [y0, y1] = y.domain();
  const top = compute[0]?.flops_per_s ?? y1;
  const fastest = memory[0]?.bytes_per_s;
  const namesOf = ({ label, how }: ComputeRoof | MemoryRoof) => (how ? [`${label} · ${how}`, label] : [label]);
  if (memory.length && compute.length) {
    const ridge = top / (fastest as number);
    const points = [[x0, (fastest as number) * x0], [ridge, top], [x1, top], [x1, y0], [x0, y0]];
    g.append(
      s("path", {
        class: "under",
        d: `M${points.map(([a, b]) => `${x(a)},${y(Math.max(b, y0))}`).join("L")}Z`,
      }),
    );
  }
  for (const roof of compute) {
    const from = fastest ? Math.max(roof.flops_per_s / fastest, x0) : x0;
    const height = y(roof.flops_per_s);
    if (height > bottom) continue;
    g.append(s("path", { class: `roof ${roof.how}`, d: `M${x(from)},${height}H${right}` }));
    const line: Line = { names: namesOf(roof), from: [x(from), height], to: [right, height], end: "right" };
    // Lines that lie so near to each other have their names on one.
    const near = lines.find((other) => Math.abs(other.from[1] - height) < 12);
    if (near) {
      near.names.unshift(`${near.names[near.names.length - 1]}, ${roof.label}`);
      line.names = [];
    }
    lines.push(line);
  }
  for (const roof of memory) {
    const end = Math.min(top / roof.bytes_per_s, x1);
    const from = Math.max(x0, y0 / roof.bytes_per_s);
    const line: Line = {
      names: namesOf(roof),
      from: [x(from), y(roof.bytes_per_s * from)],
      to: [x(end), y(roof.bytes_per_s * end)],
      end: "left",
    };
    g.append(
      s("path", {
        class: `roof ${roof.how}`,
        d:
          (gutter > left && from === x0 ? `M${left},${line.from[1]}H${gutter}` : "") +
          `M${line.from}L${line.to}`,
      }),
    );
    lines.push(line);
  }
  svg.append(g);
  return lines;
}

/**
 * A name beside its line: over no other name, no other line and no mark.
 * One without such a place is left to the list of ceilings.
 */
function placeNames(group: SVGElement, lines: Line[], marks: Mark[], frame: Frame): void {
  // Points along the middle of a name stand for it, half its height around each.
  const HALF = 6;
  const taken: [number, number][] = [];
  const title = group.parentElement?.querySelector<SVGTextElement>(".axes .title-y");
  for (let along = 0; along < (title?.getComputedTextLength() ?? 0); along += HALF)
    taken.push([frame.left + 8 + along, frame.top + 6]);
  for (const line of lines) line.names.some((name) => placed(line, name));

  function placed(line: Line, name: string): boolean {
    const text = s("text", {}, name);
    group.append(text);
    const length = text.getComputedTextLength();
    const [dx, dy] = [line.to[0] - line.from[0], line.to[1] - line.from[1]];
    const [all, angle] = [Math.hypot(dx, dy), Math.atan2(dy, dx)];
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const at = (along: number, off: number): [number, number] => [
      line.from[0] + cos * along - sin * off,
      line.from[1] + sin * along + cos * off,
    ];
    const others = lines.filter((other) => other !== line);
    const isFree = (start: number, off: number): boolean => {
      for (let along = start; along <= start + length; along += HALF) {
        const [px, py] = at(along, off);
        if (px < frame.left || px > frame.right || py < frame.top || py > frame.bottom - HALF) return false;
        if (taken.some(([a, b]) => Math.hypot(a - px, b - py) < 2 * HALF + 1)) return false;
        if (others.some((other) => distance(other, px, py) < HALF + 2)) return false;
        if (marks.some((mark) => Math.hypot(mark.x - px, mark.y - py) < mark.radius + HALF)) return false;
      }
      return true;
    };
    // One that is longer than its line begins before it.
    const last = all - length - 4;
    const first = Math.min(4, last);
    // Above its line, else under it.
    for (const off of [-HALF - 3, HALF + 4]) {
      for (let step = 0; step <= last - first; step += HALF) {
        const start = line.end === "left" ? first + step : last - step;
        if (!isFree(start, off)) continue;
        for (let along = start; along <= start + length; along += HALF) taken.push(at(along, off));
        const [px, py] = at(start, off);
        text.setAttribute("dominant-baseline", "central");
        text.setAttribute("transform", `translate(${px},${py}) rotate(${(angle * 180) / Math.PI})`);
        return true;
      }
    }
    text.remove();
    return false;
  }
}

function distance({ from, to }: Line, px: number, py: number): number {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const along = ((px - from[0]) * dx + (py - from[1]) * dy) / (dx * dx + dy * dy || 1);
  const t = Math.min(Math.max(along, 0), 1);
  return Math.hypot(from[0] + t * dx - px, from[1] + t * dy - py);
}

function roofChoice(
  roofs: (ComputeRoof | MemoryRoof)[],
  on: Set<string>,
  redraw: () => void,
): HTMLElement {
  const summary = h("summary", {});
  const say = () => (summary.textContent = `Ceilings: ${on.size} of ${roofs.length} drawn`);
  const list = h("div", { class: "checks" });
  for (const roof of roofs) {
    const box = h("input", { type: "checkbox", checked: on.has(roof.key) });
    box.addEventListener("change", () => {
      if (box.checked) on.add(roof.key);
      else on.delete(roof.key);
      say();
      redraw();
    });
    list.append(h("label", {}, box, ` ${roof.label}`, h("small", {}, ` ${roof.how}`)));
  }
  say();
  return h("details", {}, summary, list);
}
