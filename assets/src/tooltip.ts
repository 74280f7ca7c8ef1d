// One box for all panels: a heading and lines of label and value.

import { byId, h } from "./dom";

export type Lines = [string, string][];

export function showTip(x: number, y: number, title: string, lines: Lines): void {
  const tip = byId("tip");
  tip.replaceChildren(
    h("b", {}, title),
    h("dl", {}, ...lines.flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])),
  );
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? Math.max(8, x - width - 16) : x + 16;
  const top = y + 16 + height > innerHeight ? Math.max(8, y - height - 16) : y + 16;
  tip.style.left = `${Math.min(left, Math.max(8, innerWidth - width - 8))}px`;
  tip.style.top = `${top}px`;
}

export function hideTip(): void {
  byId("tip").hidden = true;
}

addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
addEventListener("scroll", hideTip, { passive: true });
