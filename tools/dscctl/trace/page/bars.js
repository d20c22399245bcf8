// Draws the operations of one row. Narrow operations are combined into columns. The heights of two colors in a column
// show how much of its time was spent waiting and moving data.

const LABEL_WIDTH = 46; // minimum width in pixels of a bar with a name
const NARROW = 4; // operations narrower than this many pixels are not drawn as bars
const COLUMN = 2; // width in pixels
const NOTHING = 0, DIM = 1, CLEAR = 2, FAILED = 3; // what a column contains

// Returns the first entry of a sorted lane that ends after a given time.
function firstVisible(columns, lane, time) {
  let low = 0, high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (columns.end[lane[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

class BarPainter {
  constructor(context, model) {
    this.pen = context;
    this.model = model;
    this.labelWidths = new Map();
  }

  // Values that apply to one frame.
  begin(view, theme, filter) {
    Object.assign(this, { view, theme, filter });
    this.right = GUTTER + view.width;
    const columns = Math.ceil(view.width / COLUMN) + 1;
    if (this.wait?.length === columns) return;
    this.wait = new Float64Array(columns);
    this.move = new Float64Array(columns);
    this.holds = new Uint8Array(columns);
  }

  track(line) {
    line.track.lanes.forEach((lane, index) => {
      const [top, height] = laneBox(line, index);
      this.lane(lane, top, height, line.y + line.height - 3);
    });
    for (const id of line.track.queued) this.neverStarted(id, line.y + line.height - 3);
  }

  lane(lane, top, height, queueTop) {
    const { columns } = this.model;
    const { view } = this;
    const wide = [];
    let narrow = false;
    for (let i = firstVisible(columns, lane, view.from); i < lane.length; ++i) {
      const id = lane[i];
      if (columns.created[id] > view.to) break;
      this.queue(columns.created[id], columns.begin[id], queueTop, this.theme.queue);
      if (columns.begin[id] > view.to) continue;
      if ((columns.end[id] - columns.begin[id]) / view.nsPerPixel >= NARROW) wide.push(id);
      else narrow = this.collect(id);
    }
    if (narrow) this.flush(top, height);
    for (const id of wide) this.bar(id, top, height);
  }

  queue(from, to, top, color) {
    const x0 = Math.max(GUTTER, this.view.x(from));
    const x1 = Math.min(this.right, this.view.x(to));
    if (x1 - x0 < 1) return;
    this.pen.fillStyle = color;
    this.pen.fillRect(x0, top, x1 - x0, 2);
  }

  neverStarted(id, top) {
    const { columns } = this.model;
    const failed = columns.result[id] > 0;
    this.queue(columns.created[id], columns.end[id], top, failed ? this.theme.fail : this.theme.queue);
  }

  collect(id) {
    const { columns } = this.model;
    const { begin, met, end } = columns;
    const moving = met[id] === NEVER ? end[id] : met[id];
    const level = columns.result[id] > 0 ? FAILED : this.filter.matches[id] ? CLEAR : DIM;
    this.spread(this.wait, begin[id], moving);
    this.spread(this.move, moving, end[id]);
    const size = COLUMN * this.view.nsPerPixel;
    const first = Math.max(0, Math.floor((begin[id] - this.view.from) / size));
    const last = Math.min(this.holds.length - 1, Math.floor((end[id] - this.view.from) / size));
    for (let at = first; at <= last; ++at) this.holds[at] = Math.max(this.holds[at], level);
    return true;
  }

  // Adds a range of time to the columns that it overlaps.
  spread(into, begin, end) {
    const { from, nsPerPixel } = this.view;
    const size = COLUMN * nsPerPixel;
    for (let at = Math.max(0, Math.floor((begin - from) / size)); at < into.length && from + at * size < end; ++at)
      into[at] += Math.min(end, from + (at + 1) * size) - Math.max(begin, from + at * size);
  }

  flush(top, height) {
    const { pen, theme, wait, move, holds } = this;
    const perNs = height / (COLUMN * this.view.nsPerPixel);
    const least = Math.min(4, height); // keeps a single short operation visible
    for (let at = 0; at < holds.length; ++at) {
      if (holds[at] === NOTHING) continue;
      let moved = Math.min(height, move[at] * perNs);
      let waited = Math.min(height - moved, wait[at] * perNs);
      if (moved + waited < least) [moved, waited] = move[at] >= wait[at] ? [least, 0] : [0, least];
      const x = GUTTER + at * COLUMN;
      pen.globalAlpha = holds[at] === DIM ? 0.12 : 1;
      pen.fillStyle = holds[at] === FAILED ? theme.fail : theme.move;
      pen.fillRect(x, top + height - moved, COLUMN, moved);
      pen.fillStyle = holds[at] === FAILED ? theme.fail : theme.wait;
      pen.fillRect(x, top + height - moved - waited, COLUMN, waited);
    }
    pen.globalAlpha = 1;
    wait.fill(0);
    move.fill(0);
    holds.fill(NOTHING);
  }

  bar(id, top, height) {
    const { columns } = this.model;
    const { pen, theme, view } = this;
    const [x0, x1] = [view.x(columns.begin[id]), view.x(columns.end[id])];
    const from = Math.max(x0, GUTTER - 4);
    const to = Math.min(x1, this.right + 4);
    if (to <= from) return;
    const met = columns.met[id];
    const split = met === NEVER ? to : Math.min(Math.max(view.x(met), from), to);
    const open = columns.state[id] !== COMPLETED && columns.result[id] <= 0;
    const failed = columns.result[id] > 0;
    const gap = x1 - x0 > 6 ? 1 : 0; // separates neighboring bars
    pen.globalAlpha = this.filter.matches[id] ? 1 : 0.12;
    pen.fillStyle = open && met === NEVER ? theme.openWait : theme.wait;
    if (split > from) pen.fillRect(from, top, Math.max(split - from - (met === NEVER ? gap : 0), 0.5), height);
    pen.fillStyle = open ? theme.openMove : theme.move;
    if (to - gap > split) pen.fillRect(split, top, to - gap - split, height);
    if (failed) this.failure(from, to - gap, top, height);
    this.label(id, from, split, to - gap, top, height, failed);
    pen.globalAlpha = 1;
  }

  failure(from, to, top, height) {
    const { pen, theme } = this;
    pen.fillStyle = theme.fail;
    pen.fillRect(from, top, to - from, Math.min(3, height / 3));
    pen.fillRect(Math.max(from, to - 3), top, Math.min(3, to - from), height);
  }

  // Writes the name into the wider of the two parts, if it fits.
  label(id, from, split, to, top, height, failed) {
    const inWait = split - from >= to - split;
    const [begin, end] = inWait ? [from, split] : [split, to];
    if (height < 11 || end - begin < LABEL_WIDTH) return;
    const text = `${failed ? "✕ " : ""}${kindOf(this.model, id).name} #${this.model.columns.sequence[id]}`;
    if (this.widthOf(text) > end - begin - 10) return;
    this.pen.fillStyle = inWait ? this.theme["wait-ink"] : this.theme["move-ink"];
    this.pen.fillText(text, begin + 5, top + height / 2 + 0.5);
  }

  widthOf(text) {
    if (!this.labelWidths.has(text)) {
      if (this.labelWidths.size > 5000) this.labelWidths.clear();
      this.labelWidths.set(text, this.pen.measureText(text).width);
    }
    return this.labelWidths.get(text);
  }
}
