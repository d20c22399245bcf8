// Shows the whole trace as one strip: how much of all ranks' time was spent waiting and moving data, and which range
// is shown below.

class Overview {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.buckets = 0;
  }

  // Adds up, for each column, how long all entries together waited and moved data in it. This is repeated only if the
  // width changes.
  measure(view, buckets) {
    const { columns, tracks } = this.model;
    this.buckets = buckets;
    this.wait = new Float64Array(buckets);
    this.move = new Float64Array(buckets);
    const [from, to] = view.whole;
    const size = (to - from) / buckets;
    const spread = (into, begin, end) => {
      for (let at = Math.max(0, Math.floor((begin - from) / size)); at < buckets && from + at * size < end; ++at)
        into[at] += Math.min(end, from + (at + 1) * size) - Math.max(begin, from + at * size);
    };
    for (const track of tracks) {
      for (const lane of track.lanes) {
        for (const id of lane) {
          const met = columns.met[id] === NEVER ? columns.end[id] : columns.met[id];
          spread(this.wait, columns.begin[id], met);
          spread(this.move, met, columns.end[id]);
        }
      }
    }
    this.most = 0;
    for (let at = 0; at < buckets; ++at) this.most = Math.max(this.most, this.wait[at] + this.move[at]);
  }

  paint(view, theme, width, failures) {
    const height = 46;
    const pen = sizeCanvas(this.canvas, width, height);
    const buckets = Math.max(1, Math.floor(view.width));
    if (buckets !== this.buckets) this.measure(view, buckets);
    this.x = (time) => GUTTER + ((time - view.whole[0]) / (view.whole[1] - view.whole[0])) * view.width;
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = theme.muted;
    pen.fillText("all ranks", 12, height / 2);
    const scale = this.most > 0 ? (height - 8) / this.most : 0;
    for (let at = 0; at < buckets; ++at) {
      const moved = this.move[at] * scale;
      const waited = this.wait[at] * scale;
      pen.fillStyle = theme.move;
      pen.fillRect(GUTTER + at, height - 2 - moved, 1, moved);
      pen.fillStyle = theme.wait;
      pen.fillRect(GUTTER + at, height - 2 - moved - waited, 1, waited);
    }
    pen.fillStyle = theme.fail;
    for (const time of failures) pen.fillRect(this.x(time) - 1, 0, 3, 5);
    this.window(pen, view, theme, width, height);
  }

  window(pen, view, theme, width, height) {
    const [x0, x1] = [this.x(view.from), Math.max(this.x(view.to), this.x(view.from) + 2)];
    pen.globalAlpha = 0.6;
    pen.fillStyle = theme.head;
    pen.fillRect(GUTTER, 0, x0 - GUTTER, height);
    pen.fillRect(x1, 0, width - x1, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = theme.muted;
    pen.strokeRect(x0 + 0.5, 0.5, x1 - x0 - 1, height - 1);
  }

  time(view, x) {
    return view.whole[0] + ((x - GUTTER) / view.width) * (view.whole[1] - view.whole[0]);
  }
}
