// Connects the parts of the page: its state, and the functions that change it.

class Page {
  constructor(model) {
    this.model = model;
    this.canvas = byId("rows");
    this.scroller = byId("scroller");
    this.painter = new RowsPainter(this.canvas, model);
    this.overview = new Overview(byId("overview"), model);
    this.tip = new Tip(model);
    this.view = new View(model.end);
    this.table = new OperationTable(model, (operation) => this.goTo(operation));
    this.order = "group";
    this.filter = applyFilter(model, "");
    this.ghosts = makeGhosts(model);
    this.failures = model.operations.filter((operation) => operation.failed).map((operation) => operation.end);
    this.lay();
  }

  lay() {
    this.layout = makeLayout(this.model, this.order, this.filter);
    byId("spacer").style.height = `${Math.max(0, this.layout.height + AXIS - this.scroller.clientHeight)}px`;
    this.draw();
  }

  // Draws one frame for all changes that happen before it.
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    if (width <= GUTTER || height <= AXIS) return;
    this.view.width = width - GUTTER;
    this.painter.paint({ view: this.view, layout: this.layout, theme: this.theme, filter: this.filter, chosen: this.chosen,
      hovered: this.hovered, ghosts: this.ghosts, scrollTop: this.scroller.scrollTop, width, height });
    this.overview.paint(this.view, this.theme, width, this.failures);
  }

  resize() { this.lay(); }

  retheme() {
    this.theme = readTheme(this.painter.pen);
    this.draw();
  }

  // ---- positions ----

  // Returns the entry at a point of the canvas. Narrow entries also match two pixels beside them.
  entryAt(x, y) {
    if (x < GUTTER || y < AXIS) return undefined;
    const line = lineAt(this.layout, y - AXIS + this.scroller.scrollTop);
    if (line === undefined || line.isHeading || line.track === undefined) return undefined;
    const { columns } = this.model;
    const reach = 2 * this.view.nsPerPixel;
    const time = this.view.time(x);
    const lanes = line.track.lanes.map((lane, index) => [lane, ...laneBox(line, index)]);
    const below = y - AXIS + this.scroller.scrollTop;
    const inLane = lanes.filter(([, top, height]) => below >= top - 1 && below <= top + height + 1);
    let best, least = Infinity;
    for (const [lane] of inLane) {
      for (let i = firstVisible(columns, lane, time - reach); i < lane.length && columns.begin[lane[i]] <= time + reach; ++i) {
        const id = lane[i];
        const distance = Math.max(columns.begin[id] - time, time - columns.end[id], 0);
        if (!this.filter.matches[id] || distance >= least) continue;
        [best, least] = [id, distance];
      }
    }
    return best;
  }

  // Returns the position of an entry's middle in the window.
  placeOf(id) {
    const { x0, x1, top, height } = this.painter.boxOf(this.lineOf(id), id);
    const box = this.canvas.getBoundingClientRect();
    return [box.left + (x0 + x1) / 2, box.top + AXIS - this.scroller.scrollTop + top + height / 2];
  }

  lineOf(id) {
    return this.layout.lines.find((line) => !line.isHeading && line.track?.index === this.model.columns.track[id]);
  }

  // ---- actions of the user ----

  hover(x, y, clientX, clientY) {
    const id = this.entryAt(x, y);
    const operation = id === undefined ? undefined : this.model.operations[this.model.columns.operation[id]];
    this.canvas.classList.toggle("over", id !== undefined);
    if (id === undefined) this.tip.hide();
    else this.tip.show(id, clientX, clientY);
    if (operation === this.hovered) return;
    this.hovered = operation;
    this.draw();
  }

  leave() {
    this.tip.hide();
    this.hovered = undefined;
    this.draw();
  }

  click(x, y) {
    const id = this.entryAt(x, y);
    this.chooseEntry(id);
  }

  chooseEntry(id) {
    this.entry = id;
    this.choose(id === undefined ? undefined : this.model.operations[this.model.columns.operation[id]]);
    byId("spoken").textContent = id === undefined ? "" : factsOf(this.model, id).map((fact) => fact.join(" ")).join(", ");
  }

  choose(operation) {
    if (operation === undefined || !operation.entries.includes(this.entry)) this.entry = operation?.entries[0];
    this.chosen = operation;
    showChosen(this.model, operation, (some) => this.goTo(some));
    this.table.show(this.filter, operation);
    this.draw();
  }

  // Shows an operation with some time around it, and scrolls to its first row.
  goTo(operation) {
    this.choose(operation);
    const around = Math.max(operation.took * 0.6, 20 * LEAST_SPAN);
    this.view.show(operation.begin - around, operation.end + around);
    this.reveal(this.entry);
    this.draw();
  }

  // If an entry is not visible, scrolls to its row and moves to its time.
  reveal(id) {
    const { columns } = this.model;
    if (columns.end[id] < this.view.from || columns.begin[id] > this.view.to)
      this.view.show(columns.begin[id] - this.view.span / 2, columns.begin[id] + this.view.span / 2);
    const line = this.lineOf(id);
    if (line === undefined) return;
    const room = this.scroller.clientHeight - AXIS;
    const top = this.scroller.scrollTop;
    if (line.y < top || line.y + line.height > top + room)
      this.scroller.scrollTop = Math.max(0, line.y - room / 2);
  }

  step(by) {
    if (this.entry === undefined) return this.chooseFirst();
    const { ids } = trackOf(this.model, this.entry);
    for (let at = ids.indexOf(this.entry) + by; at >= 0 && at < ids.length; at += by)
      if (this.filter.matches[ids[at]]) return this.chooseAndReveal(ids[at]);
  }

  chooseFirst() {
    for (const line of this.layout.lines) {
      const id = line.track?.ids.find((some) => this.filter.matches[some]);
      if (id !== undefined) return this.chooseAndReveal(id);
    }
  }

  chooseAndReveal(id) {
    this.chooseEntry(id);
    this.reveal(id);
  }

  // Returns the entry of the next row that is nearest in time, and preferably the same operation.
  changeRow(by) {
    if (this.entry === undefined) return this.chooseFirst();
    const { columns } = this.model;
    const rows = this.layout.lines.filter((line) => line.track !== undefined && line.track.ids.length > 0);
    const row = rows[rows.indexOf(this.lineOf(this.entry)) + by];
    if (row === undefined) return;
    const same = row.track.ids.find((id) => columns.operation[id] === columns.operation[this.entry]);
    const distance = (id) => Math.abs(columns.begin[id] - columns.begin[this.entry]);
    const nearest = row.track.ids.reduce((best, id) => (distance(id) < distance(best) ? id : best));
    this.chooseAndReveal(same ?? nearest);
  }

  zoom(factor, x) {
    this.view.zoom(factor, Math.max(GUTTER, x));
    this.tip.hide();
    this.draw();
  }

  move(across, down) {
    this.view.move(across);
    this.scroller.scrollTop += down;
    this.tip.hide();
    this.draw();
  }

  centre(x) {
    const time = this.overview.time(this.view, x);
    this.view.show(time - this.view.span / 2, time + this.view.span / 2);
    this.draw();
  }

  fit() {
    this.view.fit();
    this.draw();
  }

  setFilter(text) {
    this.filter = applyFilter(this.model, text);
    const all = countText(this.model.columns.size);
    byId("matches").textContent = this.filter.active ? `${countText(this.filter.count)} of ${all}` : `${all} entries`;
    this.table.show(this.filter);
    this.lay();
  }

  setOrder(order) {
    this.order = order;
    for (const some of ["group", "rank"]) byId(`by-${some}`).setAttribute("aria-pressed", String(some === order));
    this.lay();
  }
}

// Times when late ranks should have arrived: from the time when others began to wait until the last known time.
function makeGhosts(model) {
  const ghosts = [];
  for (const finding of model.raw.findings) {
    const operation = finding.kind === "LATE" ? model.operationOf.get(finding.operation) : undefined;
    if (operation === undefined) continue;
    const title = operationTitle(model, operation);
    const called = new Set(operation.entries.map((id) => trackOf(model, id).rank));
    for (const rank of finding.ranks)
      if (model.raw.ranks[rank].dump && !called.has(rank)) // a rank that arrived too late has a bar instead
        ghosts.push({ rank, group: operation.group, isMessage: operation.isMessage, from: operation.begin,
          to: Math.max(operation.end, operation.begin + 1), title });
  }
  return ghosts;
}

function start() {
  const model = readModel(JSON.parse(byId("trace").textContent));
  const page = new Page(model);
  page.toggleTheme = startTheme(() => page.retheme());
  showFacts(model);
  showFindings(model, (operation) => page.goTo(operation));
  showStragglers(model, (operation) => page.goTo(operation));
  startTabs();
  startPointer(page.canvas, page);
  startOverviewPointer(byId("overview"), page);
  startKeys(page.canvas, page);
  startTools(page);
  page.setFilter("");
  page.choose(undefined);
  new ResizeObserver(() => page.resize()).observe(page.scroller);
  page.scroller.addEventListener("scroll", () => page.draw());
  window.timelinePage = page; // for use in the browser's console
}

start();
