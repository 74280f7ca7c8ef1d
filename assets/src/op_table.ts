// The ops as rows: sorted by any column, searched by the filters above, opened by a click.

import { regimeOf, type Op, type Report } from "./data";
import { describeOpFully } from "./describe";
import { h } from "./dom";
import { count, percent, si, significant, timeNumber } from "./quantities";
import type { State } from "./state";

const FIRST = 25;

interface Column {
  title: string;
  number: boolean;
  /** Hidden first on narrow screens. */
  minor?: boolean;
  value: (op: Op) => number | string | null;
  text: (op: Op) => string;
}

export function startOpTable(host: HTMLElement, report: Report, state: State): void {
  if (!report.ops.length) {
    host.append(h("p", { class: "none" }, "No op was recorded."));
    return;
  }
  const scale = report.scale;
  const most = Math.max(...report.ops.map((op) => op.time_s)) || 1;
  const share = (op: Op) => (report.step_s ? op.time_s / report.step_s : 0);
  const columns: Column[] = [
    { title: "op", number: false, value: (op) => op.name, text: (op) => op.name },
    { title: scale.unit, number: true, value: (op) => op.time_s, text: (op) => timeNumber(op.time_s, scale) },
    { title: "of step", number: true, value: share, text: (op) => percent(share(op), 1) },
    { title: "calls", number: true, minor: true, value: (op) => op.count, text: (op) => count(op.count) },
    { title: "bound by", number: false, value: (op) => op.regime, text: (op) => op.regime },
    { title: "of ceiling", number: true, value: (op) => op.roof_fraction, text: (op) => percent(op.roof_fraction) },
    { title: "FLOP/B", number: true, minor: true, value: (op) => op.intensity, text: (op) => significant(op.intensity) },
    { title: "FLOP/s", number: true, minor: true, value: (op) => op.flops_per_s, text: (op) => si(op.flops_per_s) },
    { title: "B/s", number: true, minor: true, value: (op) => op.bytes_per_s, text: (op) => si(op.bytes_per_s) },
  ];
  let sorted = 1;
  let down = true;
  let all = false;
  let scrollTo: Op | null = null;

  const heads = columns.map((column, i) => {
    const meaning = report.terms[column.title];
    const title = meaning ? h("abbr", { title: meaning }, column.title) : column.title;
    const button = h("button", { type: "button" }, title);
    button.addEventListener("click", () => {
      down = sorted === i ? !down : column.number;
      sorted = i;
      draw();
    });
    return h("th", { scope: "col", class: classes(column) }, button);
  });
  const body = h("tbody");
  const more = h("button", { type: "button", class: "more" });
  more.addEventListener("click", () => {
    all = !all;
    draw();
  });
  const said = h("p", { class: "note", role: "status" });
  host.append(
    said,
    h("div", { class: "scroll" }, h("table", { class: "ops" }, h("thead", {}, h("tr", {}, ...heads)), body)),
    more,
  );

  function draw(): void {
    const rows = state.shown().sort((a, b) => order(columns[sorted], a, b) * (down ? -1 : 1));
    heads.forEach((head, i) =>
      head.setAttribute("aria-sort", i !== sorted ? "none" : down ? "descending" : "ascending"),
    );
    const far = state.selected ? rows.indexOf(state.selected) >= FIRST : false;
    const shown = all || far ? rows : rows.slice(0, FIRST);
    body.replaceChildren(...shown.flatMap(rowOf));
    const time = rows.reduce((sum, op) => sum + op.time_s, 0);
    said.textContent = `${rows.length} of ${report.ops.length} ops, ${timeNumber(time, scale)} ${scale.unit}`;
    more.hidden = rows.length <= FIRST;
    more.textContent = shown.length < rows.length ? `Show all ${rows.length}` : `Show the first ${FIRST}`;
    if (scrollTo) {
      body.querySelector("tr.selected")?.scrollIntoView({ block: "nearest", behavior: "smooth" });
      scrollTo = null;
    }
  }

  function rowOf(op: Op): HTMLElement[] {
    const selected = op === state.selected;
    const button = h(
      "button",
      { type: "button", class: "open", "aria-expanded": String(selected) },
      h("span", { class: "name" }, op.name),
      h("small", {}, [op.shapes, op.module ?? op.source].filter(Boolean).join(" · ")),
    );
    const row = h(
      "tr",
      { class: selected ? "selected" : null, "data-row": op.row },
      ...columns.map((column, i) => {
        if (i === 0) return h("td", { class: "flex" }, button);
        const cell = h("td", { class: classes(column) });
        if (column.title === "bound by")
          cell.append(h("i", { class: `key ${regimeOf(op.regime)}` }), column.text(op));
        else if (column.title === "of step")
          cell.append(
            column.text(op),
            h("span", { class: "track" }, h("i", { class: regimeOf(op.regime), style: `width:${(100 * op.time_s) / most}%` })),
          );
        else cell.append(column.text(op));
        return cell;
      }),
    );
    row.addEventListener("click", () => state.select(selected ? null : op, "table"));
    if (!selected) return [row];
    const details = describeOpFully(op, report).map(([label, value]) =>
      h("div", {}, h("dt", {}, label), h("dd", {}, value)),
    );
    return [row, h("tr", { class: "details" }, h("td", { colspan: columns.length }, h("dl", { class: "pairs" }, ...details)))];
  }

  state.onFilter(draw);
  state.onSelect((cause) => {
    if (state.selected && cause !== "table") scrollTo = state.selected;
    const focused = document.activeElement?.closest<HTMLElement>("tr")?.dataset.row;
    draw();
    if (focused !== undefined) body.querySelector<HTMLElement>(`tr[data-row="${focused}"] .open`)?.focus();
  });
  draw();
}

function classes(column: Column): string {
  return [column.number ? "n" : "", column.minor ? "minor" : ""].join(" ").trim();
}

function order(column: Column, a: Op, b: Op): number {
  const [x, y] = [column.value(a), column.value(b)];
  if (typeof x === "string" || typeof y === "string") return String(y ?? "").localeCompare(String(x ?? "")) * -1;
  return (x ?? -Infinity) === (y ?? -Infinity) ? 0 : (x ?? -Infinity) - (y ?? -Infinity);
}
