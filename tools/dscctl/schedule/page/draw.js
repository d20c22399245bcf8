// One schedule as a canvas: a row per stage, time from left to right.

const ROW = 24, GAP = 3, LEFT = 64;
const LETTERS = {[FORWARD]: "F", [BACKWARD]: "B", [BACKWARD_INPUT]: "I", [BACKWARD_WEIGHT]: "W"};
const WORDS = {[FORWARD]: "forward", [BACKWARD]: "backward", [BACKWARD_INPUT]: "backward, inputs",
  [BACKWARD_WEIGHT]: "backward, weights"};

function labelOf(plan, span) {
  const letter = LETTERS[span.op];
  if (plan.chunks === 2) return (span.chunk === 1 ? letter.toLowerCase() : letter) + span.microBatch;
  return plan.chunks > 2 ? `${letter}${span.chunk}.${span.microBatch}` : letter + span.microBatch;
}

function colorOf(style, span) {
  const name = span.op === FORWARD ? "forward" : span.op === BACKWARD_WEIGHT ? "weight" : "backward";
  return style.getPropertyValue(`--${name}${span.chunk % 2 === 1 ? "-odd" : ""}`).trim();
}

// The second of two that run at once takes the lower half.
function boxOf(spans, k, scale) {
  const span = spans[k], second = span.pair && k > 0 && spans[k - 1].pair && spans[k - 1].start === span.start;
  const height = span.pair ? (ROW - GAP) / 2 : ROW - GAP;
  return {x: LEFT + span.start * scale, width: (span.end - span.start) * scale, top: second ? height : 0, height};
}

// `longest` is the makespan that is as wide as the canvas: the same for all schedules, so that they can be compared.
function draw(canvas, plan, result, longest) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = ROW * plan.stages;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const scale = longest > 0 ? (width - LEFT - 4) / longest : 0;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const stage of result.stages) {
    const y = ROW * stage.number;
    pen.fillStyle = style.getPropertyValue("--ink");
    pen.textAlign = "left";
    pen.fillText(`stage ${stage.number}`, 0, y + (ROW - GAP) / 2);
    pen.fillStyle = style.getPropertyValue("--idle");
    pen.fillRect(LEFT, y, result.makespan * scale, ROW - GAP);
    stage.spans.forEach((span, k) => {
      const box = boxOf(stage.spans, k, scale), label = labelOf(plan, span);
      pen.fillStyle = colorOf(style, span);
      pen.fillRect(box.x, y + box.top, Math.max(box.width - 0.6, 0.4), box.height - 0.6);
      if (box.width < 7 * label.length + 2) return;
      pen.fillStyle = style.getPropertyValue("--label");
      pen.textAlign = "center";
      pen.fillText(label, box.x + box.width / 2, y + box.top + box.height / 2);
    });
  }
  return scale;
}

// The operation at a place of the canvas, or undefined.
function spanAt(plan, result, scale, x, y) {
  const stage = result.stages[Math.floor(y / ROW)];
  if (stage === undefined || scale === 0) return undefined;
  const time = (x - LEFT) / scale, inRow = y % ROW;
  return stage.spans.find((span, k) => {
    const box = boxOf(stage.spans, k, scale);
    return span.start <= time && time < span.end && inRow >= box.top && inRow < box.top + box.height;
  });
}
