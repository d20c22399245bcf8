// Handles mouse, touch and keys on the pictures, by calling functions of the page.

const CLOSER = 0.7;

function startPointer(canvas, page) {
  let last;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    last = event.clientX;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last === undefined) return page.hover(canvas, event);
    canvas.classList.add("dragging");
    page.drag(canvas, last - event.clientX);
    last = event.clientX;
  });
  const end = () => {
    last = undefined;
    canvas.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => page.leave());
  canvas.addEventListener("wheel", (event) => {
    if (event.shiftKey || (page.isWhole() && event.deltaY > 0)) return; // the browser scrolls the page
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return page.drag(canvas, event.deltaX);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    page.zoomAt(canvas, 1.0015 ** Math.max(-300, Math.min(300, event.deltaY * lines)), event.offsetX);
  }, {passive: false});
}

function startKeys(page) {
  const actions = {
    "+": () => page.zoom(CLOSER), "=": () => page.zoom(CLOSER), "-": () => page.zoom(1 / CLOSER),
    0: () => page.reset(), ArrowLeft: () => page.move(-1 / 8), ArrowRight: () => page.move(1 / 8),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key]) return;
    // The browser moves the slider.
    if (event.target instanceof HTMLInputElement && event.key.startsWith("Arrow")) return;
    event.preventDefault();
    actions[event.key]();
  });
}

function startTools(page) {
  byId("zoom-in").addEventListener("click", () => page.zoom(CLOSER));
  byId("zoom-out").addEventListener("click", () => page.zoom(1 / CLOSER));
  byId("reset").addEventListener("click", () => page.reset());
}
