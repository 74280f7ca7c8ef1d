// System, light or dark; print is always light.

const THEMES = ["system", "light", "dark"];
const listeners: (() => void)[] = [];

/** Charts that are not styled by CSS redraw here. */
export function onTheme(listener: () => void): void {
  listeners.push(listener);
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function changed(): void {
  listeners.forEach((listener) => listener());
}

export function startTheme(button: HTMLElement): void {
  let chosen = 0;
  const apply = (theme: string) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    changed();
  };
  const words = button.querySelector("span") ?? button;
  button.hidden = false;
  button.addEventListener("click", () => {
    chosen = (chosen + 1) % THEMES.length;
    words.textContent = THEMES[chosen];
    button.setAttribute("aria-label", `Theme: ${THEMES[chosen]}`);
    apply(THEMES[chosen]);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  addEventListener("beforeprint", () => apply("light"));
  addEventListener("afterprint", () => apply(THEMES[chosen]));
}
