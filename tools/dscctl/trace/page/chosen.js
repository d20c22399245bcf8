// Shows the chosen operation on all its ranks, side by side.

// A small bar on the operation's own time axis: when this rank arrived, how long it waited, and how long it moved
// data.
function spark(model, operation, id) {
  const { columns } = model;
  const part = (time) => `${(100 * (time - operation.begin)) / Math.max(1, operation.took)}%`;
  const piece = (from, to, color) => {
    const bit = element("s");
    bit.style.left = part(from);
    bit.style.width = `calc(${part(to)} - ${part(from)})`;
    bit.style.background = `var(--${color})`;
    return bit;
  };
  const met = columns.met[id] === NEVER ? columns.end[id] : columns.met[id];
  const failed = columns.result[id] > 0;
  return element("i", {}, piece(columns.begin[id], met, failed ? "fail" : "wait"),
    piece(met, columns.end[id], failed ? "fail" : "move"));
}

function rankCells(model, operation, id) {
  const { columns } = model;
  const met = columns.met[id];
  const waited = (met === NEVER ? columns.end[id] : met) - columns.begin[id];
  const { device, unknown_end: unknownEnd } = kindOf(model, id);
  const state = stateFact(model, id);
  const done = state === "completed";
  return [
    element("td", { class: "spark" }, spark(model, operation, id)),
    element("td", {}, columns.started[id] ? `+${durationText(columns.begin[id] - operation.begin)}` : "–"),
    element("td", {}, columns.started[id] && !device ? durationText(waited) : "–"),
    element("td", { class: done || unknownEnd ? false : "bad" }, done ? durationText(columns.end[id] - met) : state.replace("DSC_ERR_", "")),
  ];
}

function ranksOf(model, operation) {
  if (!operation.isMessage) return model.raw.groups[operation.group].ranks;
  return operation.key.split("|").slice(1, 3).map(Number);
}

function showChosen(model, operation, goTo) {
  const box = byId("chosen");
  if (operation === undefined) {
    box.replaceChildren(element("h2", {}, "No operation chosen"),
      element("p", {}, "Click one in the timeline to see it on all ranks side by side."));
    return;
  }
  const kind = kindOf(model, operation.entries[0]);
  const summary = [`group ${groupName(model, operation.group)}`, sizeFact(kind), kind.reduce_op, kind.algorithm]
    .filter((text) => text !== "").join(" · ");
  const times = `took ${durationText(operation.took)}` +
    (operation.spread > 0 ? `; rank ${operation.lastRank} came last, ${durationText(operation.spread)} after the first` : "");
  const head = element("tr", {}, ...["rank", "", "came", "waited", "moved"].map((name) => element("th", {}, name)));
  const rows = ranksOf(model, operation).map((rank) => {
    const id = operation.entries.find((entry) => trackOf(model, entry).rank === rank);
    if (id !== undefined) return element("tr", {}, element("td", {}, String(rank)), ...rankCells(model, operation, id));
    const why = model.raw.ranks[rank].dump ? "no record" : "no dump";
    return element("tr", {}, element("td", {}, String(rank)), element("td", { class: "bad", colspan: 4 }, why));
  });
  box.replaceChildren(element("h2", {}, operationTitle(model, operation)), element("p", {}, summary, element("br"), times),
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)),
    element("p"), element("button", { onclick: () => goTo(operation) }, "Zoom to it"));
}
