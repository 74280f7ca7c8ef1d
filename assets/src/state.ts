// What the panels share: which ops pass the filters, which one is selected.

import { regimeOf, type Op } from "./data";

export type Listener = () => void;

export class State {
  readonly hidden = new Set<string>();
  phase = "";
  module = "";
  text = "";
  selected: Op | null = null;
  private readonly filterListeners: Listener[] = [];
  private readonly selectListeners: ((cause: string) => void)[] = [];

  constructor(readonly ops: readonly Op[]) {}

  passes(op: Op): boolean {
    if (this.hidden.has(regimeOf(op.regime))) return false;
    if (this.phase && (op.phase ?? "") !== this.phase) return false;
    if (this.module && !(op.module === this.module || op.module?.startsWith(`${this.module}.`)))
      return false;
    if (!this.text) return true;
    const words = `${op.name} ${op.shapes} ${op.dtypes} ${op.module} ${op.source} ${op.op_class}`;
    return this.text.split(/\s+/).every((part) => words.toLowerCase().includes(part));
  }

  shown(): Op[] {
    return this.ops.filter((op) => this.passes(op));
  }

  filter(change: () => void): void {
    change();
    this.filterListeners.forEach((listener) => listener());
  }

  /** `cause` names the panel that was clicked, so that it need not scroll to itself. */
  select(op: Op | null, cause: string): void {
    if (op === this.selected) return;
    this.selected = op;
    this.selectListeners.forEach((listener) => listener(cause));
  }

  onFilter(listener: Listener): void {
    this.filterListeners.push(listener);
  }

  onSelect(listener: (cause: string) => void): void {
    this.selectListeners.push(listener);
  }
}
