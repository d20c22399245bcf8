// Words of the filter box. All must hold; a plain word is part of the operation's or the group's name.

const FLAGS = {
  failed: (model, id) => model.columns.result[id] > 0,
  unfinished: (model, id) => model.columns.state[id] !== COMPLETED && model.columns.result[id] <= 0,
  messages: (model, id) => trackOf(model, id).isMessages,
};

// A condition on one entry, or on what all entries of its kind and track share.
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

// One flag per entry and the number of those that match.
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
