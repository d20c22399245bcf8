// Converts texts to orders of operations (see order_text.hpp).

const OF_LETTER = {F: FORWARD, B: BACKWARD, I: BACKWARD_INPUT, W: BACKWARD_WEIGHT, ".": 0};

// Operations are in the format of simulate(): [operation, chunk, micro-batch, overlaps with the next one].
function decodeOrder(text, microBatches) {
  const isDown = text.startsWith("-"), counts = new Map();
  const next = (half, chunk) => {
    const count = counts.get(half + chunk) ?? 0;
    counts.set(half + chunk, count + 1);
    return isDown && half !== "F" ? microBatches - 1 - count : count;
  };
  const words = text.replace(/\(([^)]*)\)(\d+)/g, (_, body, times) => body.repeat(Number(times)));
  return Array.from(words.matchAll(/([FBIW.])(\d*)(\+?)/g), ([, letter, digits, plus]) => {
    if (letter === ".") return [0, 0, 0, 0];
    const chunk = Number(digits), halves = letter === "B" ? ["I", "W"] : [letter];
    const [microBatch] = halves.map((half) => next(half, chunk));
    return [OF_LETTER[letter], chunk, microBatch, plus === "" ? 0 : 1];
  });
}

// Returns a schedule of this size, or a text with the reason why it does not exist.
function planOf(schedule, stages, microBatches) {
  const orders = schedule.sizes[`${stages}x${microBatches}`];
  if (orders === undefined) return `${stages} stages and ${microBatches} micro-batches are not on this page`;
  if (typeof orders === "string") return `there is no such schedule: ${orders}`;
  return {
    ...schedule, stages, microBatches,
    orders: orders.map((order) => (typeof order === "string" ? decodeOrder(order, microBatches) : order)),
  };
}
