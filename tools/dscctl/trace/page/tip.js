// Collects all facts about an entry as names and values, and shows them in a tip at the pointer.

function sizeFact(kind) {
  const elements = [...new Set([kind.in, kind.out].filter((count) => count !== null))];
  const tensors = elements.map(countText).join(" → ");
  return tensors === "" ? "" : `${tensors} × ${kind.dtype}, ${bytesText(kind.bytes)}`;
}

function stateFact(model, id) {
  const { columns } = model;
  const result = resultOf(model, id);
  const { device, unknown_end: unknownEnd } = kindOf(model, id);
  if (columns.result[id] > 0) return result;
  if (unknownEnd) return `${unknownEnd}, end unknown`;
  if (columns.state[id] === COMPLETED) return "completed";
  if (!columns.started[id]) return "queued, not started";
  if (device) return "on the device";
  return columns.met[id] === NEVER ? "waiting for others" : "moving data";
}

function timeFacts(model, id) {
  const { columns } = model;
  const facts = [["called", `at ${durationText(columns.created[id])}`]];
  const until = columns.state[id] === COMPLETED || columns.result[id] > 0 ? "" : " so far";
  if (!columns.started[id]) return [...facts, ["queued", durationText(columns.end[id] - columns.created[id]) + until]];
  const met = columns.met[id];
  const { device, unknown_end: unknownEnd } = kindOf(model, id);
  if (unknownEnd) return facts;
  if (device) return [...facts, ["on device", durationText(columns.end[id] - columns.begin[id]) + until]];
  const waited = (met === NEVER ? columns.end[id] : met) - columns.begin[id];
  facts.push(["queued", durationText(columns.begin[id] - columns.created[id])]);
  facts.push(["waited", durationText(waited) + (met === NEVER ? until : "")]);
  if (met !== NEVER) facts.push(["moved", durationText(columns.end[id] - met) + until]);
  return facts;
}

function arrivalFact(model, id) {
  const operation = model.operations[model.columns.operation[id]];
  if (operation.entries.length < 2 || !model.columns.started[id]) return "";
  const after = model.columns.begin[id] - operation.begin;
  const first = after === 0 ? "first" : `${durationText(after)} after the first`;
  return trackOf(model, id).rank === operation.lastRank ? `${first}, last of all` : first;
}

function factsOf(model, id) {
  const kind = kindOf(model, id);
  const track = trackOf(model, id);
  const rankText = (rank) => (rank === null ? "" : `rank ${rank}`);
  return [
    ["rank", String(track.rank)],
    ["group", groupName(model, track.group)],
    ["number", String(model.columns.sequence[id])],
    ["state", stateFact(model, id)],
    ["size", sizeFact(kind)],
    ["reduction", kind.reduce_op],
    ["root", rankText(kind.root)],
    [kind.is_send ? "to" : "from", rankText(kind.peer)],
    ["path", kind.algorithm],
    ["came", arrivalFact(model, id)],
    ...timeFacts(model, id),
    ["time-out", kind.timeout_ms > 0 ? durationText(kind.timeout_ms * 1e6) : ""],
  ].filter(([, value]) => value !== "");
}

class Tip {
  constructor(model) {
    this.model = model;
    this.box = byId("tip");
  }

  show(id, x, y) {
    const kind = kindOf(this.model, id);
    const failed = this.model.columns.result[id] > 0;
    const list = element("dl");
    for (const [name, value] of factsOf(this.model, id))
      list.append(element("dt", {}, name), element("dd", { class: name === "state" && failed ? "bad" : false }, value));
    this.box.replaceChildren(element("strong", {}, `${kind.name} #${this.model.columns.sequence[id]}`), list);
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    this.box.style.left = `${Math.max(4, x + 16 + width > innerWidth ? x - 16 - width : x + 16)}px`;
    this.box.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - height - 8))}px`;
  }

  hide() { this.box.hidden = true; }
}
