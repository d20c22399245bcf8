// The range of time that all pictures show, so that they stay comparable.

const CLOSEST = 1 / 5000; // smallest range, as a share of all time

class TimeView {
  constructor() {
    [this.from, this.to, this.end] = [0, 0, 0];
  }

  get isWhole() {
    return this.from <= 0 && this.to >= this.end;
  }

  // Sets the length of the longest schedule. If everything was shown before, everything is shown afterwards.
  setEnd(end) {
    const wasWhole = this.isWhole;
    this.end = end;
    if (wasWhole) this.reset();
    else this.show(this.from, this.to - this.from);
  }

  show(from, width) {
    if (!(this.end > 0)) return this.reset();
    const kept = Math.min(Math.max(width, this.end * CLOSEST), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - kept);
    this.to = this.from + kept;
  }

  // A factor below 1 zooms in. The time `at` stays at its position.
  zoom(factor, at) {
    const width = this.to - this.from, wanted = Math.min(Math.max(width * factor, this.end * CLOSEST), this.end);
    this.show(at - (at - this.from) * (width > 0 ? wanted / width : 1), wanted);
  }

  move(by) {
    this.show(this.from + by, this.to - this.from);
  }

  reset() {
    [this.from, this.to] = [0, this.end];
  }
}
