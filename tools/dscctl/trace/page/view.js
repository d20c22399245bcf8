// The range of time that is shown, and how it maps to pixels.

const LEAST_SPAN = 50; // nanoseconds
const MARGIN = 0.02; // space at both ends, as a share of the whole time

class View {
  constructor(end) {
    this.whole = [-end * MARGIN, end * (1 + MARGIN)];
    this.width = 1; // width in pixels of the canvas without the labels
    [this.from, this.to] = this.whole;
  }

  get span() { return this.to - this.from; }
  get nsPerPixel() { return this.span / this.width; }
  x(time) { return GUTTER + ((time - this.from) / this.span) * this.width; }
  time(x) { return this.from + ((x - GUTTER) / this.width) * this.span; }

  show(from, to) {
    const [first, last] = this.whole;
    const span = Math.min(Math.max(to - from, LEAST_SPAN), last - first);
    const start = Math.min(Math.max((from + to - span) / 2, first), last - span);
    this.from = start;
    this.to = start + span;
  }

  // A factor below 1 zooms in. The time under the pixel stays at its position.
  zoom(factor, x) {
    const at = this.time(x);
    const part = (at - this.from) / this.span;
    const span = Math.min(Math.max(this.span * factor, LEAST_SPAN), this.whole[1] - this.whole[0]);
    this.show(at - part * span, at + (1 - part) * span);
  }

  move(pixels) {
    const by = pixels * this.nsPerPixel;
    this.show(this.from + by, this.to + by);
  }

  fit() { this.show(...this.whole); }

  // Returns round times that are about this number of pixels apart.
  ticks(pixels) {
    const least = this.nsPerPixel * pixels;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((some) => some >= least);
    const times = [];
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) times.push(time);
    return { step, times };
  }
}
