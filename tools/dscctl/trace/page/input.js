// Handles mouse, touch and keys on the timeline, by calling functions of the page.

const CLICK_PIXELS = 4; // a drag that moved fewer pixels counts as a click

function startPointer(canvas, page) {
  let drag;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, y: event.clientY, moved: 0 };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag === undefined) return page.hover(...place(event), event.clientX, event.clientY);
    const [across, down] = [event.clientX - drag.x, event.clientY - drag.y];
    drag.moved += Math.abs(across) + Math.abs(down);
    if (drag.moved < CLICK_PIXELS) return;
    canvas.classList.add("dragging");
    page.move(-across, -down);
    [drag.x, drag.y] = [event.clientX, event.clientY];
  });
  const end = (event) => {
    if (drag !== undefined && drag.moved < CLICK_PIXELS && event.type === "pointerup") page.click(...place(event));
    drag = undefined;
    canvas.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => page.leave());
  canvas.addEventListener("wheel", (event) => {
    if (event.shiftKey) return; // the browser scrolls the rows
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return page.move(event.deltaX, 0);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    page.zoom(1.0015 ** Math.max(-300, Math.min(300, event.deltaY * lines)), place(event)[0]);
  }, { passive: false });
}

function startOverviewPointer(canvas, page) {
  const jump = (event) => page.centre(event.clientX - canvas.getBoundingClientRect().left);
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    jump(event);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons & 1 && jump(event));
}

// Keys that work on the timeline, and keys that work everywhere except in a text field.
function startKeys(canvas, page) {
  const middle = () => GUTTER + page.view.width / 2;
  const onRows = {
    ArrowRight: () => page.step(1),
    ArrowLeft: () => page.step(-1),
    ArrowDown: () => page.changeRow(1),
    ArrowUp: () => page.changeRow(-1),
    Enter: () => page.chosen && page.goTo(page.chosen),
    a: () => page.move(-page.view.width / 8, 0),
    d: () => page.move(page.view.width / 8, 0),
    w: () => page.move(0, -80),
    s: () => page.move(0, 80),
  };
  const everywhere = {
    "+": () => page.zoom(0.7, middle()),
    "=": () => page.zoom(0.7, middle()),
    "-": () => page.zoom(1 / 0.7, middle()),
    0: () => page.fit(),
    "/": () => byId("filter").focus(),
    t: () => page.toggleTheme(),
    "?": () => byId("help").showModal(),
    Escape: () => page.choose(undefined),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (event.target instanceof HTMLInputElement) return event.key === "Escape" && canvas.focus();
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = (event.target === canvas && onRows[key]) || everywhere[key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function startTools(page) {
  const middle = () => GUTTER + page.view.width / 2;
  byId("zoom-in").addEventListener("click", () => page.zoom(0.6, middle()));
  byId("zoom-out").addEventListener("click", () => page.zoom(1 / 0.6, middle()));
  byId("fit").addEventListener("click", () => page.fit());
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("filter").addEventListener("input", (event) => page.setFilter(event.target.value));
  for (const order of ["group", "rank"]) byId(`by-${order}`).addEventListener("click", () => page.setOrder(order));
}
