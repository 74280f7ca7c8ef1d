import { readReport } from "./data";
import { byId, h } from "./dom";
import { startFilters } from "./filters";
import { startOpTable } from "./op_table";
import { startRoofline } from "./roofline";
import { State } from "./state";
import { startTheme } from "./theme";
import { startTimeline } from "./timeline/view";
import { startWhere } from "./where";

startTheme(byId("theme"));
const data = document.getElementById("data");
// The verdict is painted first: it is in the markup and needs nothing of what follows.
if (data) requestAnimationFrame(() => setTimeout(() => start(data)));

function start(data: HTMLElement): void {
  const report = readReport(data.textContent ?? "");
  const state = new State(report.ops);
  panel("filters", (host) => startFilters(host, report, state));
  panel("op-table", (host) => startOpTable(host, report, state));
  panel("roofline-chart", (host) => startRoofline(host, report, state));
  panel("where-view", (host) => startWhere(host, report));
  const packed = document.getElementById("timeline-data");
  if (packed)
    panel("timeline-view", (host) => startTimeline(host, JSON.parse(packed.textContent ?? ""), report, state));
}

/** A panel that breaks says so in its own place and leaves the others alone. */
function panel(id: string, start: (host: HTMLElement) => void): void {
  const host = byId(id);
  try {
    start(host);
    host.dataset.ready = "";
  } catch (error) {
    console.error(error);
    host.replaceChildren(h("p", { class: "none" }, `This panel could not be drawn: ${error}`));
  }
}
