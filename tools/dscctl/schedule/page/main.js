// The sliders simulate all schedules again when they move. All pictures show the same range of time.

const SAME = 1e-6;  // relative difference of makespans that comes only from rounding

// Times are those of a whole stage, so that schedules with different numbers of chunks are comparable.
const haveChunks = data.schedules.some((plan) => plan.chunks > 1 && !plan.costs);
const shown = new TimeView();

function scaled(list, factor) {
  return list.map((value) => value * factor);
}

// The sliders multiply the given costs of passes, so that the proportions of the parts stay the same. Plans have
// their own costs. If bytes are not given, memory is counted in micro-batches of a whole stage.
function costsNow(plan) {
  const value = (name) => Number(byId(name).value), given = plan.costs ?? data.costs;
  const part = plan.costs ? 1 : 1 / plan.chunks;
  return {
    forward: scaled(given.forward, value("forward") * part),
    backwardInput: scaled(given.backwardInput, value("backwardInput") * part),
    backwardWeight: scaled(given.backwardWeight, value("backwardWeight") * part),
    comm: data.own ? given.comm * value("comm") : value("comm"),
    moving: scaled(given.moving, data.own ? value("comm") : 1),
    activation: data.hasBytes ? scaled(given.activation, part) : [1 / plan.chunks],
    fixed: data.hasBytes ? scaled(given.fixed, part) : [0],
    reduce: {...given.reduce, bytes: scaled(given.reduce.bytes, part)},
    overlap: value("overlap"),
    after: (given.after ?? 0) * (data.own ? value("comm") : 1),
  };
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

const views = data.schedules.map((schedule) => {
  const section = element("section", schedule.recommended ? "recommended" : ""), head = element("h2", "");
  const view = {schedule, section, title: element("span", "title"), badges: element("span", "badges"), numbers: element("div", "numbers"),
    canvas: element("canvas", ""), bars: element("div", "bars"), plan: null, result: null, picture: null};
  head.append(view.title, view.badges);
  section.append(head, view.numbers, view.canvas, view.bars);
  byId("schedules").append(section);
  return view;
});
const viewOf = (canvas) => views.find((view) => view.canvas === canvas);

function titleOf({name, chunks, title}, stages, microBatches) {
  const of = chunks > 1 ? ` x ${chunks} chunks` : "";
  return title ?? `${name}: ${stages} stages${of}, ${microBatches} micro-batches`;
}

// Returns the schedule of a view for the sliders' values, and its cost; or a text with the reason why it does not
// exist.
function priceView(view) {
  const {schedule} = view, [stages, microBatches] = data.own ? [schedule.stages, schedule.microBatches] : [stagesNow(), microBatchesNow()];
  const key = `${stages}x${microBatches}`;
  view.title.textContent = titleOf(schedule, stages, microBatches);
  if (view.key !== key) [view.key, view.plan] = [key, planOf(schedule, stages, microBatches)];
  view.result = typeof view.plan === "string" ? null : simulate(view.plan, costsNow(view.plan));
  if (view.result !== null) view.result.makespan += costsNow(view.plan).after;
  view.peak = view.result === null ? 0 : Math.max(...view.result.stages.map((stage) => stage.peakBytes));
}

function addBars({bars, result, plan, peak}, most) {
  bars.replaceChildren();
  const add = (kind, words, share, text) => {
    const bar = element("b", kind), fill = document.createElement("u");
    fill.style.width = `${100 * share}%`;
    bar.append(fill);
    bars.append(element("span", "", words), bar, element("span", "", text));
  };
  const busy = result.stages.reduce((sum, stage) => sum + stage.busy, 0), all = result.makespan * plan.stages;
  add("bubble", "idle", all > 0 ? 1 - busy / all : 0, percent(all - busy, all));
  const fullest = result.stages.findIndex((stage) => stage.peakBytes === peak);
  add("memory", "most memory", most > 0 ? peak / most : 0, `${memoryText(peak)}, on stage ${fullest}`);
}

function describeView(view, shortest, limit) {
  const {result, section, peak} = view, isOver = result !== null && peak > limit;
  const isBest = views.length > 1 && result !== null && !isOver && result.makespan <= shortest * (1 + SAME);
  section.classList.toggle("best", isBest);
  section.classList.toggle("over", isOver);
  section.classList.toggle("missing", result === null);
  const badges = [[view.schedule.recommended, "recommended"], [isBest, "shortest"], [isOver, "does not fit"]];
  view.badges.replaceChildren(...badges.filter(([is]) => is).map(([, words]) => element("i", words.replaceAll(" ", "-"), words)));
  if (result === null) {
    view.numbers.textContent = view.plan;
    return;
  }
  const bubble = Math.max(...result.stages.map((stage) => stage.end - stage.start - stage.busy));
  const share = views.length > 1 && Number.isFinite(shortest) ? ` (${percent(result.makespan, shortest)} of the shortest)` : "";
  view.numbers.textContent = `makespan ${timeText(result.makespan)}${share}, a stage idles at most ${timeText(bubble)} between its first and last operation` +
    (isOver ? `; needs ${memoryText(peak)}, which is more than ${memoryText(limit)}` : "");
}

function price() {
  for (const view of views) priceView(view);
  const there = views.filter((view) => view.result !== null), peak = Math.max(0, ...there.map((view) => view.peak));
  limitSlider.fit(peak);
  const limit = limitSlider.value, fitting = there.filter((view) => view.peak <= limit);
  const shortest = Math.min(...fitting.map((view) => view.result.makespan));
  shown.setEnd(Math.max(0, ...there.map((view) => view.result.makespan)));
  for (const view of views) {
    describeView(view, shortest, limit);
    view.memory = {most: Number.isFinite(limit) ? Math.max(peak, limit) : peak, limit};
    if (view.result !== null) addBars(view, peak);
  }
  drawAll();
}

function drawAll() {
  for (const view of views) {
    if (view.result === null) continue;
    view.picture = new Picture(view.canvas, view.plan, view.result, shown, view.memory);
    view.picture.draw();
    view.scale = view.picture.scale;
  }
  byId("scale").textContent = `One scale for all: ${timeText(shown.from)} to ${timeText(shown.to)}` +
    (shown.isWhole ? "." : ` of ${timeText(shown.end)}.`) +
    (haveChunks ? " Times are those of a whole stage; a chunk takes its part of them." : "");
  byId("reset").disabled = shown.isWhole;
}

let isDue = false;
function drawSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; drawAll(); });
}

function tipText(view, it) {
  if (it.op === undefined) return `stage ${it.stage} holds ${memoryText(it.bytes ?? 0)}\nat ${timeText(it.time)}`;
  return `${WORDS[it.op]} of micro-batch ${it.microBatch}\nstage ${it.stage}, chunk ${it.chunk}, part ` +
    `${partOf(view.plan, it.stage, it.chunk)}\n${timeText(it.start)} to ${timeText(it.end)}` + (it.pair ? "\nat once with another" : "");
}

const page = {
  isWhole: () => shown.isWhole,
  zoomAt(canvas, factor, x) {
    shown.zoom(factor, viewOf(canvas).picture.timeAt(Math.max(x, LEFT)));
    drawSoon();
  },
  zoom(factor) {
    shown.zoom(factor, (shown.from + shown.to) / 2);
    drawSoon();
  },
  drag(canvas, pixels) {
    shown.move(pixels / viewOf(canvas).picture.scale);
    drawSoon();
  },
  move(part) {
    shown.move(part * (shown.to - shown.from));
    drawSoon();
  },
  reset() {
    shown.reset();
    drawSoon();
  },
  hover(canvas, event) {
    const view = viewOf(canvas), it = view.picture.at(event.offsetX, event.offsetY), tip = byId("tip");
    tip.hidden = it === undefined;
    if (tip.hidden) return;
    tip.textContent = tipText(view, it);
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 330)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  },
  leave() { byId("tip").hidden = true; },
};

const first = data.schedules[0];
byId("note").textContent = data.note;
const stagesNow = addChoice("stages", "stages", data.stages, first.stages, price);
const microBatchesNow = addChoice("microBatches", "micro-batches", data.microBatches, first.microBatches, price);
addCosts(price);
const limitSlider = new LimitSlider(price);
for (const view of views) startPointer(view.canvas, page);
startKeys(page);
startTools(page);
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
price();
const schedulePage = {data, views, shown, simulate, planOf, price};  // for tests
