// Draws one frame of the rows: headings, bars, the axis, and the marks on top of them.

const FONT = '11px system-ui, "Segoe UI", "Noto Sans", "Liberation Sans", "DejaVu Sans", sans-serif';
const BOLD = FONT.replace("11px", "600 12px");

function sizeCanvas(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

class RowsPainter {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.model = model;
    this.bars = new BarPainter(this.pen, model);
  }

  // state: { view, layout, theme, filter, chosen, hovered, ghosts, scrollTop, width, height }
  paint(state) {
    Object.assign(this, state);
    sizeCanvas(this.canvas, this.width, this.height);
    const { pen } = this;
    pen.textBaseline = "middle";
    pen.clearRect(0, 0, this.width, this.height);
    this.ticks = this.view.ticks(110);
    this.bars.begin(this.view, this.theme, this.filter);
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, this.width, this.height - AXIS);
    pen.clip();
    pen.translate(0, AXIS - this.scrollTop);
    const bottom = this.scrollTop + this.height - AXIS;
    const visible = this.layout.lines.filter((line) => line.y < bottom && line.y + line.height > this.scrollTop);
    for (const line of visible) if (!line.isHeading) this.row(line);
    for (const line of visible) this.labelOf(line);
    this.marks(visible);
    pen.restore();
    this.axis();
  }

  row(line) {
    const { pen, theme, view } = this;
    const right = GUTTER + view.width;
    pen.fillStyle = line.rank % 2 ? theme.stripe : theme.panel;
    pen.fillRect(0, line.y, right, line.height);
    pen.strokeStyle = theme.grid;
    pen.beginPath();
    for (const time of this.ticks.times) {
      const x = Math.round(view.x(time)) + 0.5;
      if (x < GUTTER) continue;
      pen.moveTo(x, line.y);
      pen.lineTo(x, line.y + line.height);
    }
    pen.stroke();
    this.band(line);
    if (line.missing) return this.noDump(line);
    this.afterDump(line);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, line.y, view.width, line.height);
    pen.clip();
    pen.font = FONT;
    if (line.track !== undefined) this.bars.track(line);
    this.ghost(line);
    pen.restore();
  }

  noDump(line) {
    const { pen, theme } = this;
    pen.fillStyle = theme.missing;
    pen.fillRect(GUTTER, line.y + 1, this.view.width, line.height - 2);
    pen.font = FONT;
    const text = "no dump of this rank";
    const width = pen.measureText(text).width + 16;
    pen.fillStyle = theme.panel;
    pen.fillRect(GUTTER + 10, line.y + 2, width, line.height - 4);
    pen.fillStyle = theme.fail;
    pen.fillText(text, GUTTER + 18, line.y + line.height / 2 + 0.5);
  }

  // The time after the dump is unknown.
  afterDump(line) {
    const x = Math.max(GUTTER, this.view.x(this.model.raw.ranks[line.rank].time));
    const right = GUTTER + this.view.width;
    if (x >= right) return;
    this.pen.fillStyle = this.theme.head;
    this.pen.fillRect(x, line.y, right - x, line.height);
    this.pen.fillStyle = this.theme.hatch;
    this.pen.fillRect(x, line.y, 1, line.height);
  }

  // Marks the time of an operation that a late rank has not called.
  ghost(line) {
    for (const ghost of this.ghosts) {
      if (ghost.rank !== line.rank || ghost.group !== line.group || ghost.isMessage !== line.isMessages) continue;
      const x0 = this.view.x(ghost.from);
      const x1 = Math.max(this.view.x(ghost.to), x0 + 6);
      const { pen, theme } = this;
      pen.fillStyle = theme["fail-soft"];
      pen.strokeStyle = theme.fail;
      pen.setLineDash([4, 3]);
      pen.fillRect(x0, line.y + 3, x1 - x0, line.height - 6);
      pen.strokeRect(x0 + 0.5, line.y + 3.5, x1 - x0 - 1, line.height - 7);
      pen.setLineDash([]);
      const begin = Math.max(x0, GUTTER);
      const text = [`has not called ${ghost.title}`, "not called"].find((some) => pen.measureText(some).width < x1 - begin - 10);
      pen.fillStyle = theme.fail;
      if (text !== undefined && line.height > 14) pen.fillText(text, begin + 6, line.y + line.height / 2 + 0.5);
    }
  }

  labelOf(line) {
    const { pen, theme } = this;
    pen.fillStyle = line.isHeading ? theme.head : line.rank % 2 ? theme.stripe : theme.panel;
    pen.fillRect(0, line.y, line.isHeading ? this.width : GUTTER, line.height);
    pen.fillStyle = theme.line;
    if (line.isHeading) pen.fillRect(0, line.y, this.width, 1);
    pen.fillRect(GUTTER - 1, line.y, 1, line.height);
    const middle = line.y + line.height / 2 + 0.5;
    pen.font = line.isHeading ? BOLD : FONT;
    pen.fillStyle = line.missing || this.ghosts.some((g) => g.rank === line.rank && g.group === line.group &&
      g.isMessage === line.isMessages) ? theme.fail : line.isHeading ? theme.ink : theme.muted;
    const text = line.isHeading ? line.title : line.label;
    pen.fillText(this.shorten(text, GUTTER - 24), 12, middle);
    if (!line.isHeading) return;
    pen.font = FONT;
    pen.fillStyle = theme.muted;
    pen.fillText(line.detail, GUTTER + 10, middle);
  }

  shorten(text, width) {
    if (this.pen.measureText(text).width <= width) return text;
    let length = text.length;
    while (length > 1 && this.pen.measureText(`${text.slice(0, length)}…`).width > width) --length;
    return `${text.slice(0, length)}…`;
  }

  // Draws outlines of the chosen operation and the hovered operation on all ranks, and lines between them.
  marks(visible) {
    this.pen.save();
    this.pen.beginPath();
    this.pen.rect(GUTTER, this.scrollTop, this.view.width, this.height);
    this.pen.clip();
    for (const [operation, width] of [[this.hovered, 1], [this.chosen, 2]])
      if (operation !== undefined) this.mark(operation, visible, width);
    this.pen.restore();
  }

  boxOf(line, id) {
    const { columns } = this.model;
    const lane = line.track.lanes.findIndex((some) => some.includes(id));
    if (lane < 0) return undefined;
    const [top, height] = laneBox(line, lane);
    const x0 = this.view.x(columns.begin[id]);
    const moving = this.view.x(columns.met[id] === NEVER ? columns.begin[id] : columns.met[id]);
    return { x0, moving, x1: Math.max(this.view.x(columns.end[id]), x0 + 3), top, height };
  }

  mark(operation, visible, width) {
    const { pen, theme } = this;
    const boxes = [];
    for (const line of visible) {
      if (line.track === undefined || line.group !== operation.group || line.isMessages !== operation.isMessage) continue;
      for (const id of operation.entries) {
        if (this.model.columns.track[id] !== line.track.index) continue;
        const box = this.boxOf(line, id);
        if (box !== undefined) boxes.push({ ...box, isSend: kindOf(this.model, id).is_send });
      }
    }
    pen.strokeStyle = theme.chosen;
    pen.lineWidth = width;
    for (const { x0, x1, top, height } of boxes) pen.strokeRect(x0 - 0.5, top - 1, x1 - x0 + 1, height + 2);
    if (width > 1 && operation.isMessage) this.arrow(boxes);
    pen.lineWidth = 1;
  }

  // Drawn behind the bars of the chosen operation's group, from the first arrival to the last one.
  band(line) {
    const operation = this.chosen;
    if (operation === undefined || operation.isMessage || line.isMessages || line.group !== operation.group) return;
    const { pen, theme, view } = this;
    const right = GUTTER + view.width;
    const x0 = Math.min(right, Math.max(GUTTER, view.x(operation.begin)));
    const x1 = Math.min(right, Math.max(x0, view.x(operation.begin + operation.spread)));
    pen.fillStyle = theme.chosen;
    pen.globalAlpha = 0.1;
    pen.fillRect(x0, line.y, x1 - x0, line.height);
    pen.globalAlpha = 0.7;
    if (x1 > GUTTER && x1 < right) pen.fillRect(x1, line.y, 1, line.height);
    pen.globalAlpha = 1;
  }

  arrow(boxes) {
    const from = boxes.find((box) => box.isSend);
    const to = boxes.find((box) => !box.isSend);
    if (from === undefined || to === undefined) return;
    const { pen, theme } = this;
    const down = to.top > from.top;
    const [x0, x1] = [from.moving, to.x1];
    const [y0, y1] = [from.top + (down ? from.height : 0), to.top + (down ? 0 : to.height)];
    pen.strokeStyle = pen.fillStyle = theme.chosen;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
    pen.stroke();
    pen.beginPath();
    pen.arc(x1, y1, 3.5, 0, 2 * Math.PI);
    pen.fill();
  }

  axis() {
    const { pen, theme, view } = this;
    pen.fillStyle = theme.panel;
    pen.fillRect(0, 0, this.width, AXIS);
    pen.fillStyle = theme.line;
    pen.fillRect(0, AXIS - 1, this.width, 1);
    pen.font = FONT;
    pen.fillStyle = theme.muted;
    pen.fillText(`${durationText(view.span)} shown`, 12, AXIS / 2);
    for (const time of this.ticks.times) {
      const x = view.x(time);
      if (x < GUTTER) continue;
      pen.fillStyle = theme.line;
      pen.fillRect(Math.round(x), AXIS - 6, 1, 5);
      const text = axisText(time, this.ticks.step, view.to);
      pen.fillStyle = theme.muted;
      if (x + 8 + pen.measureText(text).width < this.width) pen.fillText(text, Math.round(x) + 4, AXIS / 2);
    }
  }
}
