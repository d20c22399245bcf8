// Formats numbers with their units.

const number = (value, digits = 6) => Number(value.toPrecision(digits)).toString();
const percent = (part, whole) => `${(whole > 0 ? (100 * part) / whole : 0).toFixed(1)} %`;

function inUnits(value, step, units) {
  let unit = 0;
  for (; unit + 1 < units.length && Math.abs(value) >= step; unit++) value /= step;
  return `${number(value, 4)} ${units[unit]}`;
}

// Times have a unit only if it is known.
function timeText(time) {
  return data.unit === "us" ? inUnits(time, 1000, ["us", "ms", "s"].slice(0, time < 1e6 ? 2 : 3)) : number(time);
}

function memoryText(memory) {
  return data.hasBytes ? inUnits(memory, 1000, ["B", "KB", "MB", "GB", "TB"]) : `${number(memory, 4)} micro-batches`;
}

// Returns a shorter text for the same amount of memory.
function heldText(memory) {
  return data.hasBytes ? memoryText(memory) : `${number(memory, 3)} held`;
}

// Returns marks for an axis between two times, at least `apart` from each other: multiples of 1, 2 or 5 times a power
// of ten.
function marksOf(from, to, apart) {
  const power = 10 ** Math.floor(Math.log10(apart)), step = [1, 2, 5, 10].find((it) => it * power >= apart * (1 - 1e-9)) * power;
  const marks = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to * (1 + 1e-9); k++) marks.push(k * step);
  return {marks, step};
}

// Returns texts for an axis up to `end`. All have the same unit and as many decimals as the step needs.
function axisUnit(end) {
  if (data.unit !== "us") return {words: "time", factor: 1};
  return end >= 1e6 ? {words: "time, s", factor: 1e6} : end >= 1e3 ? {words: "time, ms", factor: 1e3} : {words: "time, us", factor: 1};
}

function markText(mark, step, factor) {
  const decimals = Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9));
  return (mark / factor).toFixed(Math.min(decimals, 12));
}
