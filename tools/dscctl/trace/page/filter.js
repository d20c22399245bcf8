// The words of the filter box. An entry must match all of them. A plain word matches a part of the operation's name
// or the group's name.

const FLAGS = {
  failed: (model, id) => model.columns.result[id] > 0,
  unfinished: (model, id) => model.columns.state[id] !== COMPLETED && model.columns.result[id] <= 0,
  messages: (model, id) => trackOf(model, id).isMessages,
};

// A condition on one entry, or on properties that all entries of the same kind and track share.
function wordTest(word) {
  if (FLAGS[word] !== undefined) return FLAGS[word];
  const rank = /^rank:(\d+)$/.exec(word);
  if (rank) return (model, id) => trackOf(model, id).rank === Number(rank[1]);
  const number = /^#(\d+)$/.exec(word);
  if (number) return (model, id) => model.columns.sequence[id] === Number(number[1]);
  return (model, id) =>
    kindOf(model, id).name.toLowerCase().includes(word) ||
    groupName(model, trackOf(model, id).group).toLowerCase().includes(word);
}

// Returns one flag per entry, and the number of entries that match.
function applyFilter(model, text) {
  const tests = text.toLowerCase().split(/\s+/).filter((word) => word !== "").map(wordTest);
  const matches = new Uint8Array(model.columns.size);
  let count = 0;
  for (let id = 0; id < matches.length; ++id) {
    if (!tests.every((test) => test(model, id))) continue;
    matches[id] = 1;
    ++count;
  }
  return { active: tests.length > 0, matches, count };
}
