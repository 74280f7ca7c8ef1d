// Time by module path or source line: an icicle, wide is long, colour says what bounds it.

import { hierarchy, partition, type HierarchyRectangularNode } from "d3-hierarchy";
import { regimeOf, type Group, type Report } from "./data";
import { h } from "./dom";
import { percent, timeText } from "./quantities";
import { hideTip, showTip } from "./tooltip";

const ROW = 30;
const DEPTH = 7;
// Of the drawing's width: what is narrower than half a pixel on a wide screen.
const THINNEST = 0.0006;
const PARTS = ["compute_s", "memory_s", "overhead_s", "unmodelled_s"] as const;

interface Tree {
  name: string;
  path: string;
  /** Of a module, where it is known and says more than its name. */
  kind: string;
  own_s: number;
  parts: number[];
  phases: Map<string, number>;
  children: Tree[];
}
type Cell = HierarchyRectangularNode<Tree>;

export function startWhere(host: HTMLElement, report: Report): void {
  const repeated = report.joined.length < report.modules.length;
  let join = repeated;
  const modules = () => (join ? report.joined : report.modules);
  const views: [string, () => Tree][] = [
    ["module", () => treeOf(modules(), (name) => modulePath(name, join), "(no module)", ".")],
    ["source line", () => treeOf(report.lines, linePath, "(no line)", ":")],
  ];
  const tabs = h("div", { class: "chips", role: "group", "aria-label": "Divide time by" });
  const crumbs = h("nav", { class: "crumbs", "aria-label": "Path" });
  const chart = h("div", { class: "icicle" });
  const buttons = views.map(([name, make], i) => {
    const button = h("button", { type: "button", class: "chip" }, `by ${name}`);
    button.addEventListener("click", () => show(i, make()));
    tabs.append(button);
    return button;
  });
  const box = h("input", { type: "checkbox", checked: join });
  box.addEventListener("change", () => {
    join = box.checked;
    show(0, views[0][1]());
  });
  if (repeated) tabs.append(h("label", { class: "check" }, box, " repeated blocks as one"));
  host.append(tabs, crumbs, chart);

  function show(chosen: number, tree: Tree): void {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
    const root = hierarchy(tree, (node) => node.children)
      .sum((node) => node.own_s)
      .sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
    if (!(root.value! > 0)) {
      crumbs.replaceChildren();
      chart.replaceChildren(h("p", { class: "none" }, "Nothing was recorded."));
      chart.style.height = "auto";
      return;
    }
    zoom(partition<Tree>().size([1, root.height + 1])(root), null);
  }

  function zoom(focus: Cell, from: Cell | null): void {
    hideTip();
    crumbs.replaceChildren(
      ...focus.ancestors().reverse().map((cell) => {
        const step = h("button", { type: "button", disabled: cell === focus }, withKind(cell.data.name, cell.data));
        step.addEventListener("click", () => zoom(cell, focus));
        return step;
      }),
    );
    const width = focus.x1 - focus.x0;
    const cells = focus.descendants().filter(
      (cell) => cell.depth - focus.depth < DEPTH && (cell.x1 - cell.x0) / width > THINNEST,
    );
    const deepest = Math.max(...cells.map((cell) => cell.depth - focus.depth));
    chart.style.height = `${(deepest + 1) * ROW}px`;
    const made = new Map<Cell, HTMLButtonElement>();
    chart.replaceChildren(
      ...cells.map((cell) => {
        const node = button(cell, focus, width);
        made.set(cell, node);
        node.addEventListener("click", () => {
          const target = cell === focus ? cell.parent : cell;
          if (target) zoom(target, focus);
        });
        return node;
      }),
    );
    made.get(focus)!.tabIndex = 0;
    if (from) made.get(focus)!.focus({ preventScroll: true });
    chart.onkeydown = (event) => {
      const at = cells.find((cell) => made.get(cell) === document.activeElement);
      const next = at && neighbour(at, event.key, made);
      if (!next) return;
      event.preventDefault();
      made.get(at)!.tabIndex = -1;
      made.get(next)!.tabIndex = 0;
      made.get(next)!.focus();
    };
  }

  function button(cell: Cell, focus: Cell, width: number): HTMLButtonElement {
    const sums = partsOf(cell);
    const regime = PARTS[sums.indexOf(Math.max(...sums))].slice(0, -2);
    const total = sums.reduce((a, b) => a + b, 0) || 1;
    const node = h(
      "button",
      {
        type: "button",
        tabindex: -1,
        class: regimeOf(regime),
        "aria-label": `${withKind(cell.data.name, cell.data)}, ${timeText(cell.value)}, mostly ${regime}`,
        style:
          `left:${(100 * (cell.x0 - focus.x0)) / width}%;width:${(100 * (cell.x1 - cell.x0)) / width}%;` +
          `top:${(cell.depth - focus.depth) * ROW}px;height:${ROW - 2}px`,
      },
      h("span", {}, cell.data.name, cell.data.kind ? h("small", {}, ` (${cell.data.kind})`) : ""),
      h("em", {}, ...sums.map((part, i) =>
        h("i", { class: PARTS[i].slice(0, -2), style: `width:${(100 * part) / total}%` }))),
    );
    const tell = (x: number, y: number) =>
      showTip(x, y, withKind(cell.data.path || cell.data.name, cell.data), [
        ["time", `${timeText(cell.value)}, ${percent((cell.value ?? 0) / report.step_s, 1)} of the step`],
        ...PARTS.flatMap((part, i): [string, string][] =>
          sums[i] > 0 ? [[part.slice(0, -2), `${timeText(sums[i])}, ${percent(sums[i] / total)}`]] : []),
        ...phasesOf(cell).map(([phase, time]): [string, string] => [phase, timeText(time)]),
      ]);
    node.addEventListener("pointermove", (event) => tell(event.clientX, event.clientY));
    node.addEventListener("pointerleave", hideTip);
    node.addEventListener("blur", hideTip);
    node.addEventListener("focus", () => {
      if (!node.matches(":focus-visible")) return;
      const box = node.getBoundingClientRect();
      tell(box.left, box.bottom);
    });
    return node;
  }

  const first = report.modules.some((group) => group.name?.includes(".")) ? 0 : 1;
  const begin = report[first ? "lines" : "modules"].length ? first : 1 - first;
  show(begin, views[begin][1]());
}

function neighbour(cell: Cell, key: string, made: Map<Cell, unknown>): Cell | undefined {
  const siblings = (cell.parent?.children ?? [cell]).filter((sibling) => made.has(sibling));
  const at = siblings.indexOf(cell);
  const found: Record<string, Cell | null | undefined> = {
    ArrowLeft: siblings[at - 1],
    ArrowRight: siblings[at + 1],
    ArrowUp: cell.parent,
    ArrowDown: cell.children?.find((child) => made.has(child)),
  };
  const next = found[key];
  return next && made.has(next) ? next : undefined;
}

/** `encoder.layer.3 (BertLayer)`. */
function withKind(name: string, { kind }: Tree): string {
  return kind ? `${name} (${kind})` : name;
}

/** Joined rows say how many they are, `blocks.*.attn x4`; without that they meet in the tree. */
function modulePath(name: string, joined: boolean): string[] {
  return (joined ? name.replace(/ x\d+$/, "") : name).split(".");
}

/** `a/b/train.py:41 in f` -> folder and file, then the line. */
function linePath(name: string): string[] {
  const cut = /^(.*?):(\d+.*)$/.exec(name);
  return cut ? [cut[1], cut[2]] : [name];
}

function treeOf(
  groups: Group[],
  split: (name: string) => string[],
  unnamed: string,
  joint: string,
): Tree {
  const make = (name: string, path: string): Tree => ({
    name, path, kind: "", own_s: 0, parts: [0, 0, 0, 0], phases: new Map(), children: [],
  });
  const root = make("step", "");
  const known = new Map<string, Tree>([["", root]]);
  for (const group of groups) {
    let node = root;
    let path = "";
    for (const name of group.name ? split(group.name) : [unnamed]) {
      path += (path ? joint : "") + name;
      let child = known.get(path);
      if (!child) {
        child = make(name, path);
        known.set(path, child);
        node.children.push(child);
      }
      node = child;
    }
    if (group.module_class && group.module_class !== node.name) node.kind = group.module_class;
    node.own_s += Math.max(0, group.time_s);
    PARTS.forEach((part, i) => (node.parts[i] += group[part] ?? 0));
    const phase = group.phase ?? "";
    if (phase) node.phases.set(phase, (node.phases.get(phase) ?? 0) + group.time_s);
  }
  return root;
}

function partsOf(cell: Cell): number[] {
  const sums = [0, 0, 0, 0];
  cell.each((node) => node.data.parts.forEach((part, i) => (sums[i] += part)));
  return sums;
}

function phasesOf(cell: Cell): [string, number][] {
  const sums = new Map<string, number>();
  cell.each((node) => node.data.phases.forEach((time, phase) => sums.set(phase, (sums.get(phase) ?? 0) + time)));
  return [...sums].sort((a, b) => b[1] - a[1]);
}
