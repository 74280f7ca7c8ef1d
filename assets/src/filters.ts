// Which ops the roofline and the table show.

import { REGIMES, regimeOf, type Report } from "./data";
import { h } from "./dom";
import { percent } from "./quantities";
import type { State } from "./state";

export function startFilters(host: HTMLElement, report: Report, state: State): void {
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Bound by" });
  for (const regime of REGIMES) {
    const ops = report.ops.filter((op) => regimeOf(op.regime) === regime);
    if (!ops.length) continue;
    const time = ops.reduce((sum, op) => sum + op.time_s, 0);
    const chip = h(
      "button",
      { type: "button", class: `chip ${regime}`, "aria-pressed": "true", "data-regime": regime },
      h("i", { class: "key" }),
      `${regime} `,
      h("small", {}, `${ops.length} · ${percent(report.step_s ? time / report.step_s : null)}`),
    );
    chip.addEventListener("click", () =>
      state.filter(() => {
        const hide = !state.hidden.has(regime);
        if (hide) state.hidden.add(regime);
        else state.hidden.delete(regime);
        chip.setAttribute("aria-pressed", String(!hide));
      }),
    );
    chips.append(chip);
  }

  const phases = [...new Set(report.ops.map((op) => op.phase).filter((p) => !!p))] as string[];
  const phase = choice("Phase", "every phase", phases, (value) => (state.phase = value));
  const module = choice("Module", "every module", modulePaths(report), (v) => (state.module = v));

  const search = h("input", {
    type: "search",
    placeholder: "op, shape, module, line",
    "aria-label": "Search ops",
    id: "search",
  });
  search.addEventListener("input", () =>
    state.filter(() => (state.text = search.value.trim().toLowerCase())),
  );
  host.append(chips, ...[phase, module].filter((c) => c !== null), search);

  function choice(
    label: string,
    all: string,
    values: string[],
    set: (value: string) => void,
  ): HTMLElement | null {
    if (values.length < 2) return null;
    const select = h(
      "select",
      { "aria-label": label, id: `by-${label.toLowerCase()}` },
      h("option", { value: "" }, all),
      ...values.map((value) => h("option", { value }, value)),
    );
    select.addEventListener("change", () => state.filter(() => set(select.value)));
    return select;
  }
}

/** Modules and the modules that hold them, in order of time; numbered siblings stay apart. */
function modulePaths(report: Report): string[] {
  const times = new Map<string, number>();
  for (const op of report.ops) {
    const parts = op.module?.split(".") ?? [];
    for (let depth = 1; depth <= Math.min(parts.length, 4); depth++) {
      const path = parts.slice(0, depth).join(".");
      times.set(path, (times.get(path) ?? 0) + op.time_s);
    }
  }
  return [...times.keys()].sort((a, b) => times.get(b)! - times.get(a)!).slice(0, 200);
}
