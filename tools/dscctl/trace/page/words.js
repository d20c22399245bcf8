// Formats numbers and names for people.

const byId = (id) => document.getElementById(id);

// Makes an element with attributes and children. Texts become text nodes, and are never parsed as markup.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const DURATION_UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];

function durationText(ns) {
  for (const [size, name] of DURATION_UNITS) {
    const value = Math.abs(ns) / size;
    if (value >= 1) return `${ns < 0 ? "−" : ""}${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${name}`;
  }
  return `${Math.round(ns)} ns`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function bytesText(bytes) {
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit + 1 < BYTE_UNITS.length) {
    value /= 1024;
    ++unit;
  }
  return `${Number.isInteger(value) ? value : value.toFixed(2)} ${BYTE_UNITS[unit]}`;
}

const countText = (count) => count.toLocaleString("en-US");
const plural = (count, one, many = `${one}s`) => `${countText(count)} ${count === 1 ? one : many}`;
const escapedKey = (...parts) => parts.join("|");

// Formats a time of the axis with only as many digits as are needed to distinguish neighboring marks. `last` is the
// largest time shown.
function axisText(ns, step, last) {
  const [size, name] = DURATION_UNITS.find(([unit]) => last >= unit) ?? [1, "ns"];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(ns / size).toFixed(digits)} ${name}`;
}
