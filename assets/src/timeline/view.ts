// The timeline panel: overview, lanes, zoom by wheel, pinch, drag, keys and buttons.

import { select } from "d3-selection";
import { zoom, zoomIdentity, type D3ZoomEvent } from "d3-zoom";
import { regimeOf, type Report } from "../data";
import { h, onWidth } from "../dom";
import { timeText } from "../quantities";
import type { State } from "../state";
import { colour, onTheme } from "../theme";
import { hideTip, showTip } from "../tooltip";
import { coverage, drawLanes, placeLanes, roundTimes, spanAt, type Palette, type Placed, type View } from "./draw";
import { nest, pack, unpack, type Lane, type Packed, type Spans } from "./spans";

const AXIS = 24;
const OVERVIEW = 34;
const MOST_ROWS = 14;
// What a host span of each kind is coloured as: the cause of overhead that it would be.
const CAUSE_OF_KIND: Record<string, string> = {
  op: "dispatch",
  launch: "launch",
  synchronise: "synchronisation",
  allocate: "allocation",
  runtime: "unexplained",
  python: "python",
  annotation: "annotation",
  "garbage collection": "garbage_collection",
  compilation: "compilation",
  "data loading": "data_loading",
};

export function startTimeline(
  host: HTMLElement,
  packed: Packed,
  report: Report,
  state: State,
): void {
  const spans = unpack(packed);
  const unit_s = packed.unit_ns * 1e-9;
  const end = Math.max(packed.end, 1);
  const kinds = packed.host_kinds;
  const hiddenKinds = new Set<string>();
  const present = new Set([...spans.host.kind].map((kind) => kinds[kind]));
  // Frames of Python stand deep above everything else; they are one click away.
  if (present.has("python") && present.has("op")) hiddenKinds.add("python");

  const canvas = h("canvas", { class: "lanes", tabindex: 0, role: "application" });
  canvas.setAttribute(
    "aria-label",
    "Timeline of one step. Arrow keys move, plus and minus zoom, 0 shows all, n and p go to the next and previous idle gap by length.",
  );
  const overview = h("canvas", { class: "overview", "aria-hidden": "true" });
  const said = h("p", { class: "said", role: "status" }, "");
  const tools = h("div", { class: "chips tools", role: "group", "aria-label": "Timeline" });
  const legend = h("div", { class: "legend" });
  host.replaceChildren(tools, overview, canvas, said, legend);

  let lanes: Lane[] = [];
  let placed: Placed[] = [];
  let height = 0;
  let width = 0;
  let view: View = { from: 0, to: end, width: 1 };
  let palette: Palette;
  let picked: { lane: Lane; span: number } | null = null;
  let waiting = 0;

  // ---- lanes

  function layOut(): void {
    lanes = [];
    const kernelTitle = report.device.kind === "cpu" ? () => "work" : (id: number) => `stream ${id}`;
    packed.streams.forEach((id, i) => {
      const rows = pack(spans.kernel, i, 4);
      if (rows.rows.length) lanes.push({ kind: "kernel", title: kernelTitle(id), spans: spans.kernel, ...rows });
    });
    const idle = pack(spans.idle, 0, 2);
    const idleTitle = report.device.kind === "cpu" ? "overhead, by cause" : "idle, by cause";
    if (idle.rows.length) lanes.push({ kind: "idle", title: idleTitle, spans: spans.idle, ...idle });
    const keep = (kind: number) => !hiddenKinds.has(kinds[kind]);
    packed.threads
      .map((id, i) => ({ id, nested: nest(spans.host, i, keep, MOST_ROWS), count: countIn(spans.host, i) }))
      .sort((a, b) => b.count - a.count)
      .slice(0, 12)
      .forEach(({ id, nested }) => {
        if (nested.rows.length) lanes.push({ kind: "host", title: `host thread ${id}`, spans: spans.host, ...nested });
      });
    ({ placed, height } = placeLanes(lanes, AXIS));
    size();
  }

  function readPalette(): void {
    const cache = new Map<string, string>();
    const named = (name: string) => {
      if (!cache.has(name)) cache.set(name, colour(name));
      return cache.get(name) as string;
    };
    const kernelColours = packed.regimes.map((regime) =>
      named(regime === "collective" || regime === "copy" ? regime : regimeOf(regime)),
    );
    const causeColours = packed.causes.map((cause) => causeColour(cause, named));
    const hostColours = kinds.map((kind) => causeColour(CAUSE_OF_KIND[kind] ?? "unexplained", named));
    const inks = new Map<string, string>();
    palette = {
      ink: named("ink"),
      muted: named("muted"),
      line: named("line"),
      page: named("page"),
      panel: named("panel"),
      colourOf: (lane, span) => {
        const kind = lane.spans.kind[span];
        if (lane.kind === "host") return hostColours[kind] ?? named("unmodelled");
        const list = lane.kind === "kernel" ? kernelColours : causeColours;
        return list[kind - 1] ?? named("unmodelled");
      },
      inkOn: (fill) => {
        if (!inks.has(fill)) inks.set(fill, luminance(fill) > 0.36 ? "#111418" : "#ffffff");
        return inks.get(fill) as string;
      },
      label: nameOf,
      dimmed: (lane, span) => {
        const op = state.selected;
        if (!op || lane.kind === "idle" || !named_in_timeline(op.name)) return false;
        return plain(packed.names[lane.spans.name[span] - 1] ?? "") !== op.name;
      },
    };
  }

  const timelineNames = new Set(packed.names.map(plain));
  function named_in_timeline(name: string): boolean {
    return timelineNames.has(name);
  }

  function nameOf(lane: Lane, span: number): string {
    if (lane.kind === "idle") {
      const cause = packed.causes[lane.spans.kind[span] - 1] ?? "";
      return report.causes[cause] ?? cause.replaceAll("_", " ");
    }
    return plain(packed.names[lane.spans.name[span] - 1] ?? "(no name)");
  }

  // ---- drawing

  function size(): void {
    for (const [element, tall] of [[canvas, height], [overview, OVERVIEW]] as const) {
      const ratio = Math.min(devicePixelRatio || 1, 2);
      element.width = Math.round(width * ratio);
      element.height = Math.round(tall * ratio);
      element.style.height = `${tall}px`;
      element.getContext("2d")?.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    drawSoon();
  }

  function drawSoon(): void {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      draw();
    });
  }

  function draw(): void {
    const context = canvas.getContext("2d");
    if (!context || width <= 0) return;
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const scale = width / ((view.to - view.from) * unit_s);
    for (const time of roundTimes(view, unit_s)) {
      const x = (time - view.from * unit_s) * scale;
      context.fillStyle = palette.line;
      context.fillRect(Math.round(x), 0, 1, height);
      context.fillStyle = palette.muted;
      context.fillText(timeText(time), x + 4, AXIS / 2);
    }
    for (const { lane, top } of placed) {
      context.fillStyle = palette.panel;
      if (lane.kind !== "host") context.fillRect(0, top, width, lane.rows.length * 17 - 2);
    }
    drawLanes(context, placed, view, palette);
    if (picked) outline(context, picked);
    drawOverview();
    canvas.dataset.view = `${view.from} ${view.to}`;
  }

  function outline(context: CanvasRenderingContext2D, { lane, span }: { lane: Lane; span: number }): void {
    const at = placed.find((entry) => entry.lane === lane);
    const depth = lane.rows.findIndex((row) => row.includes(span));
    if (!at || depth < 0) return;
    const scale = width / (view.to - view.from);
    const left = (lane.spans.start[span] - view.from) * scale;
    context.strokeStyle = palette.ink;
    context.lineWidth = 2;
    context.strokeRect(left, at.top + depth * 17, Math.max(2, (lane.spans.end[span] - lane.spans.start[span]) * scale), 15);
  }

  let strip: { width: number; theme: string; image: ImageBitmap | HTMLCanvasElement } | null = null;
  function drawOverview(): void {
    const context = overview.getContext("2d");
    if (!context) return;
    if (strip?.width !== width || strip.theme !== palette.page) {
      const image = h("canvas", { width, height: OVERVIEW });
      const paint = image.getContext("2d") as CanvasRenderingContext2D;
      const rows: [Spans, string, number, number][] = [
        [spans.kernel, colour("compute"), 0, 16],
        [spans.idle, colour("overhead"), 17, 8],
        [spans.host, palette.muted, 26, 8],
      ];
      for (const [list, fill, top, tall] of rows) {
        paint.fillStyle = fill;
        coverage(list, end, width).forEach((share, pixel) => {
          paint.globalAlpha = Math.min(1, share);
          paint.fillRect(pixel, top, 1, tall);
        });
      }
      strip = { width, theme: palette.page, image };
    }
    context.clearRect(0, 0, width, OVERVIEW);
    context.drawImage(strip.image, 0, 0, width, OVERVIEW);
    const [a, b] = [(view.from / end) * width, (view.to / end) * width];
    context.fillStyle = palette.page;
    context.globalAlpha = 0.7;
    context.fillRect(0, 0, a, OVERVIEW);
    context.fillRect(b, 0, width - b, OVERVIEW);
    context.globalAlpha = 1;
    context.strokeStyle = palette.ink;
    context.lineWidth = 1.5;
    context.strokeRect(a + 0.75, 0.75, Math.max(b - a - 1.5, 2), OVERVIEW - 1.5);
  }

  // ---- zoom

  const surface = select<HTMLCanvasElement, unknown>(canvas);
  const behaviour = zoom<HTMLCanvasElement, unknown>()
    .filter((event: Event) => {
      if (event.type === "wheel") {
        // Scrolling past the chart must not be caught by it.
        const wheel = event as WheelEvent;
        return wheel.ctrlKey || wheel.metaKey || document.activeElement === canvas;
      }
      return !(event as MouseEvent).button;
    })
    .wheelDelta((event) => -event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.002) * (event.ctrlKey ? 4 : 1))
    .on("zoom", (event: D3ZoomEvent<HTMLCanvasElement, unknown>) => {
      const { k, x } = event.transform;
      const visible = end / k;
      const from = Math.min(Math.max((-x / (k * width)) * end, 0), end - visible);
      view = { from, to: from + visible, width };
      hideTip();
      drawSoon();
    });
  surface.call(behaviour).on("dblclick.zoom", null);

  function goTo(from: number, to: number): void {
    const length = Math.min(Math.max(to - from, Math.min(end, 40 / packed.unit_ns)), end);
    const start = Math.min(Math.max((from + to - length) / 2, 0), end - length);
    const k = end / length;
    surface.call(behaviour.transform, zoomIdentity.translate((-start / end) * k * width, 0).scale(k));
  }

  function zoomBy(factor: number): void {
    const middle = (view.from + view.to) / 2;
    const half = ((view.to - view.from) / 2) * factor;
    goTo(middle - half, middle + half);
  }

  function panBy(share: number): void {
    const by = (view.to - view.from) * share;
    goTo(view.from + by, view.to + by);
  }

  onWidth(host, (now) => {
    const { from, to } = view;
    width = now;
    behaviour.scaleExtent([1, Math.max(1, (end * packed.unit_ns) / 40)]).extent([[0, 0], [width, 1]]).translateExtent([[0, 0], [width, 1]]);
    layOut();
    goTo(from, to);
    // In this frame: a capture may take no other.
    draw();
  });

  // ---- pointing

  function pointed(event: MouseEvent): { lane: Lane; span: number } | null {
    const box = canvas.getBoundingClientRect();
    return spanAt(placed, event.clientX - box.left, event.clientY - box.top, view);
  }

  function lines(lane: Lane, span: number): [string, string][] {
    const kind = lane.spans.kind[span];
    const what = lane.kind === "host" ? kinds[kind] : lane.kind === "kernel" ? packed.regimes[kind - 1] : "idle";
    return [
      ["duration", timeText((lane.spans.end[span] - lane.spans.start[span]) * unit_s)],
      ["start", timeText(lane.spans.start[span] * unit_s)],
      ["on", lane.title],
      ["kind", what ?? "unknown"],
    ];
  }

  canvas.addEventListener("pointermove", (event) => {
    const hit = event.buttons ? null : pointed(event);
    if (hit) showTip(event.clientX, event.clientY, nameOf(hit.lane, hit.span), lines(hit.lane, hit.span));
    else hideTip();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => {
    canvas.focus({ preventScroll: true });
    pick(pointed(event));
  });
  canvas.addEventListener("dblclick", (event) => {
    const hit = pointed(event);
    if (hit) showSpan(hit.lane, hit.span);
  });

  function pick(hit: { lane: Lane; span: number } | null): void {
    picked = hit;
    said.textContent = hit
      ? `${nameOf(hit.lane, hit.span)}: ${lines(hit.lane, hit.span).map(([label, value]) => `${label} ${value}`).join(", ")}`
      : "";
    const op = hit && hit.lane.kind !== "idle" ? report.ops.find((o) => o.name === nameOf(hit.lane, hit.span)) : null;
    if (op) state.select(op, "timeline");
    drawSoon();
  }

  function showSpan(lane: Lane, span: number): void {
    const length = Math.max(lane.spans.end[span] - lane.spans.start[span], 20 / packed.unit_ns);
    goTo(lane.spans.start[span] - length * 0.6, lane.spans.end[span] + length * 0.6);
    pick({ lane, span });
  }

  // ---- keys and buttons

  const gaps = [...spans.idle.start.keys()].sort((a, b) => duration(spans.idle, b) - duration(spans.idle, a)).slice(0, 200);
  let gap = -1;
  function goToGap(step: number): void {
    const lane = lanes.find((candidate) => candidate.kind === "idle");
    if (!lane || !gaps.length) return;
    gap = (gap + step + gaps.length) % gaps.length;
    showSpan(lane, gaps[gap]);
    said.textContent = `Idle gap ${gap + 1} by length. ${said.textContent}`;
  }

  const keys: Record<string, () => void> = {
    ArrowLeft: () => panBy(-0.2),
    ArrowRight: () => panBy(0.2),
    a: () => panBy(-0.2),
    d: () => panBy(0.2),
    "+": () => zoomBy(0.5),
    "=": () => zoomBy(0.5),
    w: () => zoomBy(0.5),
    "-": () => zoomBy(2),
    s: () => zoomBy(2),
    "0": () => goTo(0, end),
    n: () => goToGap(1),
    p: () => goToGap(-1),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  const tool = (text: string, label: string, act: () => void) => {
    const button = h("button", { type: "button", class: "chip", "aria-label": label, title: label }, text);
    button.addEventListener("click", act);
    tools.append(button);
  };
  tool("+", "Zoom in", () => zoomBy(0.5));
  tool("−", "Zoom out", () => zoomBy(2));
  tool("All", "Show the whole step", () => goTo(0, end));
  if (gaps.length) tool("Next longest gap", "Go to the next longest idle gap", () => goToGap(1));
  for (const kind of ["python", "annotation", "runtime"]) {
    if (!present.has(kind)) continue;
    const box = h("input", { type: "checkbox", checked: !hiddenKinds.has(kind) });
    box.addEventListener("change", () => {
      if (box.checked) hiddenKinds.delete(kind);
      else hiddenKinds.add(kind);
      picked = null;
      layOut();
    });
    tools.append(h("label", { class: "check" }, box, ` ${kind === "python" ? "Python frames" : `${kind} spans`}`));
  }
  tools.append(h("small", { class: "hint" }, "click, then wheel or drag; double click zooms to a span"));

  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    seek(event);
  });
  overview.addEventListener("pointermove", (event) => event.buttons && seek(event));
  function seek(event: PointerEvent): void {
    const time = ((event.clientX - overview.getBoundingClientRect().left) / width) * end;
    const half = (view.to - view.from) / 2;
    goTo(time - half, time + half);
  }

  function drawLegend(): void {
    const entries: [string, string][] = packed.regimes.map((regime) => [
      regime === "collective" || regime === "copy" ? regime : regimeOf(regime),
      regime,
    ]);
    for (const cause of packed.causes) entries.push([`cause-${cause}`, report.causes[cause] ?? cause]);
    for (const kind of present) {
      const cause = CAUSE_OF_KIND[kind];
      if (!packed.causes.includes(cause) && !hiddenKinds.has(kind)) entries.push([`cause-${cause}`, kind]);
    }
    legend.replaceChildren(
      ...entries.map(([name, text]) =>
        h("span", {}, h("i", { style: `background:var(--${name}, var(--unmodelled))` }), text.replaceAll("_", " ")),
      ),
    );
  }

  readPalette();
  drawLegend();
  onTheme(() => {
    readPalette();
    drawSoon();
  });
  state.onSelect(drawSoon);
}

function causeColour(cause: string, named: (name: string) => string): string {
  return named(`cause-${cause}`) || named("unmodelled");
}

function plain(name: string): string {
  return name.startsWith("aten::") ? name.slice(6) : name;
}

function duration(spans: Spans, i: number): number {
  return spans.end[i] - spans.start[i];
}

function countIn(spans: Spans, lane: number): number {
  let count = 0;
  for (const value of spans.lane) if (value === lane) count++;
  return count;
}

function luminance(hex: string): number {
  const value = parseInt(hex.slice(1), 16);
  const [r, g, b] = [value >> 16, (value >> 8) & 255, value & 255].map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
