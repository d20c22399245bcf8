// A copy of the library's simulator, dsc_pipe_simulate(). A test compares both on random schedules.

const FORWARD = 2, BACKWARD = 3, BACKWARD_INPUT = 4, BACKWARD_WEIGHT = 5;

function ofPart(list, part) {
  return list.length === 1 ? list[0] : list[part];
}

function stageOf(plan, part) {
  const chunk = Math.floor(part / plan.stages), index = part % plan.stages;
  return plan.placement === "zigzag" && chunk % 2 === 1 ? plan.stages - 1 - index : index;
}

function partOf(plan, stage, chunk) {
  const back = plan.placement === "zigzag" && chunk % 2 === 1;
  return chunk * plan.stages + (back ? plan.stages - 1 - stage : stage);
}

function duration(costs, part, op) {
  if (op === FORWARD) return ofPart(costs.forward, part);
  let sum = 0;
  if (op !== BACKWARD_WEIGHT) sum += ofPart(costs.backwardInput, part);
  if (op !== BACKWARD_INPUT) sum += ofPart(costs.backwardWeight, part);
  return sum;
}

// The time when a message arrives at its receiver, by part and micro-batch; NaN if it has not been sent.
class Arrivals {
  constructor(plan) {
    this.plan = plan;
    this.links = new Map();  // the time from which a stage can send to another stage
    const all = plan.stages * plan.chunks * plan.microBatches;
    this.forward = new Float64Array(all).fill(NaN);
    this.gradient = new Float64Array(all).fill(NaN);
  }

  index(part, microBatch) {
    return part * this.plan.microBatches + microBatch;
  }

  // Returns 0 if the operation needs no message.
  before(part, op, microBatch) {
    const apart = this.plan.placement === "apart", last = this.plan.stages * this.plan.chunks - 1;
    if (op === FORWARD && part > 0 && !apart) return this.forward[this.index(part - 1, microBatch)];
    if ((op === BACKWARD || op === BACKWARD_INPUT) && part < last && !apart)
      return this.gradient[this.index(part + 1, microBatch)];
    return 0;
  }

  note(part, op, microBatch, end, costs) {
    const there = (to) => {
      const exists = to >= 0 && to < this.plan.stages * this.plan.chunks;
      const [here, other] = exists ? [stageOf(this.plan, part), stageOf(this.plan, to)] : [0, 0];
      return here === other ? end : this.send(`${here} ${other}`, end, ofPart(costs.moving ?? [0], Math.min(part, to))) + costs.comm;
    };
    if (op === FORWARD) this.forward[this.index(part, microBatch)] = there(part + 1);
    if (op === BACKWARD || op === BACKWARD_INPUT) this.gradient[this.index(part, microBatch)] = there(part - 1);
  }

  // Messages from one stage to another are sent one after another.
  send(link, end, moving) {
    const sent = Math.max(this.links.get(link) ?? 0, end) + moving;
    this.links.set(link, sent);
    return sent;
  }
}

// Gradients of a part become complete evenly during the last operation that adds to them, and are reduced in buckets.
class Reductions {
  constructor(plan, costs) {
    this.left = new Array(plan.stages * plan.chunks).fill(plan.microBatches);
    this.ends = new Array(plan.stages).fill(0);
    this.costs = costs.reduce ?? {bytes: [0]};
  }

  note(stage, part, op, start, end) {
    if (op === FORWARD || op === BACKWARD_INPUT || --this.left[part] > 0) return;
    const {bytes, bucket, latency, rate} = this.costs, all = ofPart(bytes, part);
    if (all <= 0) return;
    const count = bucket > 0 ? Math.ceil(all / bucket) : 1;
    for (let done = 0; done < count; done++) {
      const size = Math.min(bucket > 0 ? bucket : all, all - done * bucket);
      const ready = start + (end - start) * ((done + 1) / count);
      this.ends[stage] = Math.max(this.ends[stage], ready) + latency + (rate > 0 ? size / rate : 0);
    }
  }
}

// Returns how many operations start together at k: one, two, or none for an idle step.
function groupAt(order, k) {
  if (order[k][0] === 0) return [];
  return order[k][3] && k + 1 < order.length ? [order[k], order[k + 1]] : [order[k]];
}

// The bytes that a stage holds, and the times when they changed. A change of 0 is not recorded.
function hold(stage, time, change) {
  if (change === 0) return;
  stage.bytes += change;
  stage.peakBytes = Math.max(stage.peakBytes, stage.bytes);
  stage.memory.push([time, stage.bytes]);
}

function bytesAtStart(plan, costs, stage) {
  let sum = 0;
  for (let chunk = 0; chunk < plan.chunks; chunk++) sum += ofPart(costs.fixed ?? [0], partOf(plan, stage, chunk));
  return sum;
}

function runStage(plan, costs, arrivals, reductions, stage) {
  const self = stage, order = plan.orders[self.number];
  let moved = false;
  while (self.position < order.length) {
    const group = groupAt(order, self.position);
    let start = self.end;
    for (const [op, chunk, m] of group) start = Math.max(start, arrivals.before(partOf(plan, self.number, chunk), op, m));
    if (Number.isNaN(start)) break;
    let time = 0;
    for (const [op, chunk] of group) time += duration(costs, partOf(plan, self.number, chunk), op);
    if (group.length === 2) time *= costs.overlap;
    for (const [op, chunk, m] of group) {
      self.spans.push({stage: self.number, op, chunk, microBatch: m, start, end: start + time, pair: group.length === 2});
      arrivals.note(partOf(plan, self.number, chunk), op, m, start + time, costs);
      reductions.note(self.number, partOf(plan, self.number, chunk), op, start, start + time);
      if (op === FORWARD) {
        self.held += 1;
        hold(self, start, ofPart(costs.activation ?? [0], partOf(plan, self.number, chunk)));
      }
      self.peak = Math.max(self.peak, self.held);
    }
    for (const [op, chunk] of group)
      if (op === BACKWARD || op === BACKWARD_WEIGHT || plan.forwardOnly) {
        self.held -= 1;
        hold(self, start + time, -ofPart(costs.activation ?? [0], partOf(plan, self.number, chunk)));
      }
    if (group.length > 0) {
      self.start = Math.min(self.start, start);
      self.end = start + time;
      self.busy += time;
    }
    self.position += Math.max(1, group.length);
    moved = true;
  }
  return moved;
}

// Returns {makespan, stages: [{busy, start, end, peak, spans, peakBytes, memory}]}. `memory` is a list of times, and
// of the bytes that are held from each time. Returns null if the order cannot be run.
function simulate(plan, costs) {
  const arrivals = new Arrivals(plan), reductions = new Reductions(plan, costs);
  const stages = plan.orders.map((_, number) => {
    const bytes = bytesAtStart(plan, costs, number);
    return {number, position: 0, busy: 0, start: Infinity, end: 0, held: 0, peak: 0, spans: [],
      bytes, peakBytes: bytes, memory: [[0, bytes]]};
  });
  for (let moved = true; moved;) {
    moved = false;
    for (const stage of stages) if (runStage(plan, costs, arrivals, reductions, stage)) moved = true;
  }
  if (stages.some((stage) => stage.position < plan.orders[stage.number].length)) return null;
  return {makespan: Math.max(...stages.map((stage) => stage.end), ...reductions.ends), stages};
}
