// Reads the colors for the canvas from the style sheet, so that they are defined only once.

const COLORS = ["panel", "ink", "muted", "line", "grid", "head", "stripe", "wait", "wait-ink", "move", "move-ink",
  "queue", "fail", "fail-soft", "chosen", "hatch", "warn"];

function hatchPattern(context, color, background) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  if (background !== undefined) {
    pen.fillStyle = background;
    pen.fillRect(0, 0, 8, 8);
  }
  pen.strokeStyle = color;
  pen.lineWidth = 2;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(shift - 2, 10);
    pen.lineTo(shift + 10, -2);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function readTheme(context) {
  const style = getComputedStyle(document.documentElement);
  const theme = {};
  for (const name of COLORS) theme[name] = style.getPropertyValue(`--${name}`).trim();
  theme.missing = hatchPattern(context, theme.hatch);
  theme.openWait = hatchPattern(context, theme.panel, theme.wait);
  theme.openMove = hatchPattern(context, theme.panel, theme.move);
  return theme;
}

function startTheme(onChange) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    byId("theme").textContent = dark ? "☀" : "☾";
    onChange();
  };
  const toggle = () => set(root.dataset.theme !== "dark");
  byId("theme").addEventListener("click", toggle);
  system.addEventListener("change", () => set(system.matches));
  set(system.matches);
  return toggle;
}
