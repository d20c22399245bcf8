// Sliders price all schedules again as they move.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const number = (value) => Number(value.toPrecision(6)).toString();
const percent = (part, whole) => `${(whole > 0 ? (100 * part) / whole : 0).toFixed(1)} %`;

const SLIDERS = [
  ["forward", "forward", 0, 4, 1], ["backwardInput", "backward, inputs", 0, 4, 1],
  ["backwardWeight", "backward, weights", 0, 4, 1], ["comm", "message", 0, data.own ? 4 : 2, data.own ? 1 : null], ["overlap", "overlap", 0.5, 1, null],
];

// With different numbers of chunks times are those of a whole stage, or nothing could be compared.
const ofStage = new Set(data.schedules.map((plan) => plan.chunks)).size > 1;

function scaled(list, factor) {
  return list.map((value) => value * factor);
}

// Passes are multiples of what was given, so that parts keep their proportions. Plans have costs of their own.
function costsNow(plan) {
  const value = (name) => Number(byId(name).value), given = plan.costs ?? data.costs;
  const part = ofStage && !data.own ? 1 / plan.chunks : 1;
  return {
    forward: scaled(given.forward, value("forward") * part),
    backwardInput: scaled(given.backwardInput, value("backwardInput") * part),
    backwardWeight: scaled(given.backwardWeight, value("backwardWeight") * part),
    comm: data.own ? given.comm * value("comm") : value("comm"),
    moving: scaled(given.moving, data.own ? value("comm") : 1),
    reduce: {...given.reduce, bytes: scaled(given.reduce.bytes, part)},
    overlap: value("overlap"),
  };
}

function addSlider([name, words, least, most, start]) {
  const label = document.createElement("label"), input = document.createElement("input"), output = document.createElement("output");
  input.type = "range";
  Object.assign(input, {id: name, min: least, max: Math.max(most, start ?? data.costs[name]), step: 0.01});
  input.value = start ?? data.costs[name];
  const show = () => { output.textContent = (start === null ? "" : "× ") + number(Number(input.value)); };
  input.addEventListener("input", () => { show(); price(); });
  show();
  label.append(words, output, input);
  byId("costs").append(label);
}

function addBars(holder, result, plan) {
  const most = Math.max(...views.map((view) => Math.max(...view.result.stages.map((stage) => stage.peak / view.plan.chunks))));
  holder.replaceChildren();
  const add = (kind, words, share, text) => {
    const name = document.createElement("span"), bar = document.createElement("b"), fill = document.createElement("u");
    const value = document.createElement("span");
    bar.className = kind;
    fill.style.width = `${100 * share}%`;
    bar.append(fill);
    [name.textContent, value.textContent] = [words, text];
    holder.append(name, bar, value);
  };
  const busy = result.stages.reduce((sum, stage) => sum + stage.busy, 0), all = result.makespan * plan.stages;
  add("bubble", "idle", all > 0 ? 1 - busy / all : 0, percent(all - busy, all));
  const peak = Math.max(...result.stages.map((stage) => stage.peak));
  add("memory", "activations", most > 0 ? peak / plan.chunks / most : 0, `${peak} of a chunk, ${number(peak / plan.chunks)} of a stage`);
}

const views = data.schedules.map((plan) => {
  const section = document.createElement("section"), title = document.createElement("h2");
  const numbers = document.createElement("div"), canvas = document.createElement("canvas"), bars = document.createElement("div");
  title.textContent = plan.title;
  numbers.className = "numbers";
  bars.className = "bars";
  section.append(title, numbers, canvas, bars);
  byId("schedules").append(section);
  const view = {plan, section, numbers, canvas, bars, result: null, scale: 0};
  canvas.addEventListener("mousemove", (event) => showTip(view, event));
  canvas.addEventListener("mouseleave", () => { byId("tip").hidden = true; });
  return view;
});

function showTip(view, event) {
  const span = spanAt(view.plan, view.result, view.scale, event.offsetX, event.offsetY), tip = byId("tip");
  tip.hidden = span === undefined;
  if (tip.hidden) return;
  tip.textContent = `${WORDS[span.op]} of micro-batch ${span.microBatch}\nstage ${span.stage}, chunk ${span.chunk}, part ` +
    `${partOf(view.plan, span.stage, span.chunk)}\n${number(span.start)} to ${number(span.end)}` + (span.pair ? "\nat once with another" : "");
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 330)}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

function price() {
  for (const view of views) view.result = simulate(view.plan, costsNow(view.plan));
  const longest = Math.max(...views.map((view) => view.result.makespan));
  const shortest = Math.min(...views.map((view) => view.result.makespan));
  for (const view of views) {
    const own = Math.max(...view.result.stages.map((stage) => stage.end - stage.start - stage.busy));
    view.numbers.textContent = `makespan ${number(view.result.makespan)} (${percent(view.result.makespan, shortest)} of the shortest), ` +
      `idle between a stage's first and last operation at most ${number(own)}`;
    view.section.classList.toggle("best", views.length > 1 && view.result.makespan === shortest);
    view.scale = draw(view.canvas, view.plan, view.result, longest);
    addBars(view.bars, view.result, view.plan);
  }
  byId("scale").textContent = `One scale for all: ${number(longest)} from left to right.` +
    (ofStage && !data.own ? " Times are those of a whole stage; a chunk takes its part of them." : "");
}

SLIDERS.forEach(addSlider);
addEventListener("resize", price);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", price);
price();
const schedulePage = {data, views, simulate, price};  // for tests
