// The sliders for costs, for the size of the pipeline, and for the memory of a stage.

const COSTS = [
  ["forward", "forward", 0, 4, 1], ["backwardInput", "backward, inputs", 0, 4, 1],
  ["backwardWeight", "backward, weights", 0, 4, 1], ["comm", "message", 0, data.own ? 4 : 2, data.own ? 1 : null],
  ["overlap", "overlap", 0.5, 1, null],
];
const LIMIT_STEPS = 400;

function addSlider({id, words, least, most, step, start, text}, changed) {
  const label = document.createElement("label"), input = document.createElement("input"), output = document.createElement("output");
  input.type = "range";
  Object.assign(input, {id, min: least, max: most, step});
  input.value = start;
  const show = () => { output.textContent = text(Number(input.value), input); };
  input.addEventListener("input", () => { show(); changed(); });
  show();
  label.append(words, output, input);
  byId("costs").append(label);
  return {input, show};
}

function addCosts(changed) {
  for (const [id, words, least, most, start] of COSTS) {
    const own = start ?? data.costs[id];
    const text = (value) => (start !== null ? `× ${number(value)}` : id === "comm" ? timeText(value) : number(value));
    addSlider({id, words, least, most: Math.max(most, 2 * (id === "comm" ? own : 0), own), step: most > 1 ? 0.01 : 0.005, start: own, text}, changed);
  }
}

// A slider for a list of values, or no slider if there is only one value. Returns a function that reads the value.
function addChoice(id, words, values, start, changed) {
  if (values.length < 2) return () => start;
  const {input} = addSlider(
    {id, words, least: 0, most: values.length - 1, step: 1, start: values.indexOf(start), text: (k) => String(values[k])}, changed);
  return () => values[Number(input.value)];
}

// At the right end of this slider, memory is unlimited.
class LimitSlider {
  constructor(changed) {
    this.most = 0;
    this.start = data.memory > 0 ? data.memory : Infinity;
    const text = (value) => (value >= this.most ? "no limit" : memoryText(value));
    this.slider = addSlider({id: "limit", words: "memory of a stage", least: 0, most: 1, step: "any", start: 1, text}, changed);
  }

  get value() {
    const value = Number(this.slider.input.value);
    return value >= this.most ? Infinity : value;
  }

  // Extends the range to the peak memory of the schedules. A limit that is set does not change.
  fit(peak) {
    const most = data.hasBytes ? 1.25 * peak : Math.ceil(1.25 * peak + 1), {input, show} = this.slider;
    if (most <= this.most) return;
    const limit = this.most === 0 ? this.start : this.value;
    this.most = Number.isFinite(limit) ? Math.max(most, 1.25 * limit) : most;
    input.max = this.most;
    input.step = data.hasBytes ? this.most / LIMIT_STEPS : 0.5;
    input.value = Number.isFinite(limit) ? limit : this.most;
    this.most = Number(input.max);
    show();
  }
}
