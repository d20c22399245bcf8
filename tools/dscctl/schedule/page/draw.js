// Draws one schedule on a canvas. Each stage has two rows: its operations, and the memory that it holds. Time runs
// from left to right.

const ROW = 24, GAP = 3, LEFT = 64, RIGHT = 4, AXIS = 22, LETTER = 7;
const MOST_STRIPS = 128;  // stages with a row for memory, because a canvas has a maximum height
const MARKS_APART = 90;   // minimum distance in pixels
const LETTERS = {[FORWARD]: "F", [BACKWARD]: "B", [BACKWARD_INPUT]: "I", [BACKWARD_WEIGHT]: "W"};
const WORDS = {[FORWARD]: "forward", [BACKWARD]: "backward", [BACKWARD_INPUT]: "backward, inputs",
  [BACKWARD_WEIGHT]: "backward, weights"};

function labelOf(plan, span) {
  const letter = LETTERS[span.op];
  if (plan.chunks === 2) return (span.chunk === 1 ? letter.toLowerCase() : letter) + span.microBatch;
  return plan.chunks > 2 ? `${letter}${span.chunk}.${span.microBatch}` : letter + span.microBatch;
}

// Returns the height of the row for memory.
function stripOf({stages}) {
  if (stages > MOST_STRIPS) return 0;
  return stages > 8 ? 20 : 34;
}

// If two operations run at the same time, the second one takes the lower half.
function heightsOf(spans, k) {
  const span = spans[k], second = span.pair && k > 0 && spans[k - 1].pair && spans[k - 1].start === span.start;
  const height = span.pair ? (ROW - GAP) / 2 : ROW - GAP;
  return {top: second ? height : 0, height};
}

class Picture {
  // `shown` is the range of time that all pictures show. `memory` is {most, limit}, also the same for all pictures.
  constructor(canvas, plan, result, shown, memory) {
    Object.assign(this, {canvas, plan, result, shown, memory, strip: stripOf(plan)});
    this.pitch = ROW + this.strip;
    const ratio = devicePixelRatio || 1;
    [this.width, this.height] = [canvas.clientWidth, this.pitch * plan.stages + AXIS];
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(this.height * ratio);
    canvas.style.height = `${this.height}px`;
    this.scale = shown.to > shown.from ? (this.width - LEFT - RIGHT) / (shown.to - shown.from) : 0;
    this.pen = canvas.getContext("2d");
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.pen.font = "11px system-ui, sans-serif";
    this.pen.textBaseline = "middle";
    const style = getComputedStyle(document.documentElement);
    this.color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = new Map();
    for (const name of ["forward", "backward", "weight"])
      for (const odd of ["", "-odd"]) this.colors.set(name + odd, this.color(name + odd));
  }

  x(time) {
    return LEFT + (time - this.shown.from) * this.scale;
  }

  colorOf(span) {
    const name = span.op === FORWARD ? "forward" : span.op === BACKWARD_WEIGHT ? "weight" : "backward";
    return this.colors.get(name + (span.chunk % 2 === 1 ? "-odd" : ""));
  }

  draw() {
    const {pen, plan, result} = this, muted = this.color("muted");
    for (const stage of result.stages) {
      pen.fillStyle = this.color("ink");
      pen.textAlign = "left";
      pen.fillText(`stage ${stage.number}`, 0, this.pitch * stage.number + (ROW - GAP) / 2);
      if (this.strip === 0) continue;
      pen.fillStyle = muted;
      pen.fillText(`≤ ${heldText(stage.peakBytes)}`, 0, this.pitch * stage.number + ROW + this.strip / 2 - 2);
    }
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, this.width - LEFT, this.height);
    pen.clip();
    for (const stage of result.stages) {
      this.drawOperations(stage, this.pitch * stage.number);
      if (this.strip > 0) this.drawMemory(stage, this.pitch * stage.number + ROW);
    }
    pen.restore();
    this.drawAxis(this.pitch * plan.stages);
  }

  drawOperations(stage, y) {
    const {pen, plan} = this, ink = this.color("label");
    pen.fillStyle = this.color("idle");
    pen.fillRect(this.x(0), y, this.result.makespan * this.scale, ROW - GAP);
    pen.textAlign = "center";
    stage.spans.forEach((span, k) => {
      if (span.end < this.shown.from || span.start > this.shown.to) return;
      const {top, height} = heightsOf(stage.spans, k);
      const left = this.x(span.start), width = (span.end - span.start) * this.scale;
      pen.fillStyle = this.colorOf(span);
      pen.fillRect(left, y + top, Math.max(width - 0.6, 0.4), height - 0.6);
      if (width < 2 * LETTER) return;
      const label = labelOf(plan, span);
      if (width < LETTER * label.length + 2) return;
      pen.fillStyle = ink;
      pen.fillText(label, left + width / 2, y + top + height / 2);
    });
  }

  // Draws the memory as steps, in red where it exceeds the limit, and the limit as a line.
  drawMemory(stage, y) {
    const {pen, memory: {most, limit}} = this, full = this.strip - 5, bottom = y + full;
    if (!(most > 0)) return;
    const fine = this.color("held"), over = this.color("over");
    stage.memory.forEach(([time, bytes], k) => {
      const end = k + 1 < stage.memory.length ? stage.memory[k + 1][0] : this.result.makespan;
      if (end < this.shown.from || time > this.shown.to || end <= time) return;
      pen.fillStyle = bytes > limit ? over : fine;
      pen.fillRect(this.x(time), bottom - (full * bytes) / most, (end - time) * this.scale + 0.6, (full * bytes) / most);
    });
    pen.fillStyle = this.color("line");
    pen.fillRect(this.x(0), bottom, this.result.makespan * this.scale, 1);
    if (limit > most) return;
    pen.fillStyle = over;
    pen.fillRect(LEFT, bottom - (full * limit) / most, this.width, 1);
  }

  drawAxis(y) {
    const {pen, shown} = this, unit = axisUnit(shown.end);
    pen.fillStyle = this.color("muted");
    pen.fillRect(LEFT, y, this.width - LEFT - RIGHT, 1);
    pen.textAlign = "left";
    pen.fillText(unit.words, 0, y + 12);
    if (!(this.scale > 0)) return;
    const {marks, step} = marksOf(shown.from, shown.to, MARKS_APART / this.scale);
    for (const mark of marks) {
      const x = this.x(mark), text = markText(mark, step, unit.factor), half = pen.measureText(text).width / 2;
      pen.fillRect(x, y, 1, 5);
      pen.textAlign = x - half < LEFT ? "left" : x + half > this.width ? "right" : "center";
      pen.fillText(text, x, y + 13);
    }
  }

  timeAt(x) {
    return this.shown.from + (x - LEFT) / this.scale;
  }

  // Returns what is at a position of the canvas: an operation, or {stage, time, bytes} in a row for memory, or
  // undefined.
  at(x, y) {
    const stage = this.result.stages[Math.floor(y / this.pitch)], inRow = y % this.pitch, time = this.timeAt(x);
    if (stage === undefined || this.scale === 0 || x < LEFT || time > this.result.makespan) return undefined;
    if (inRow >= ROW) return {stage: stage.number, time, bytes: stage.memory.findLast(([since]) => since <= time)?.[1]};
    return stage.spans.find((span, k) => {
      const {top, height} = heightsOf(stage.spans, k);
      return span.start <= time && time < span.end && inRow >= top && inRow < top + height;
    });
  }
}
