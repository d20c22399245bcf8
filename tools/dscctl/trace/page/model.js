// The trace in memory: one column per field for all entries, the operations that connect entries, and the tracks that
// show them.

const QUEUED = 0, STARTED = 1, COMPLETED = 2;
const NEVER = -1;
const FIELDS = 7; // numbers per entry in a track's data

function countEntries(raw) {
  return raw.tracks.reduce((sum, track) => sum + track.data.length / FIELDS, 0);
}

// Times are in nanoseconds since the first event of the trace. An entry without an end lasts until its rank's dump.
function makeColumns(size) {
  return {
    size,
    track: new Int32Array(size),
    sequence: new Float64Array(size),
    kind: new Int32Array(size),
    created: new Float64Array(size),
    begin: new Float64Array(size), // when the rank arrived; if it never did, when the entry was created
    met: new Float64Array(size), // NEVER: not all ranks arrived
    end: new Float64Array(size),
    started: new Uint8Array(size), // 0: it never left the queue
    state: new Uint8Array(size),
    result: new Int16Array(size),
    operation: new Int32Array(size),
  };
}

function readEntry(columns, at, data, from, dumpTime) {
  const [sequence, kind, created, queued, waited, moved, result] = data.slice(from, from + FIELDS);
  columns.sequence[at] = sequence;
  columns.kind[at] = kind;
  columns.created[at] = created;
  columns.result[at] = result;
  const started = queued === NEVER ? NEVER : created + queued;
  const met = waited === NEVER ? NEVER : started + waited;
  columns.started[at] = started === NEVER ? 0 : 1;
  columns.begin[at] = started === NEVER ? created : started;
  columns.met[at] = met;
  const last = met !== NEVER ? met : columns.begin[at];
  columns.end[at] = moved === NEVER ? Math.max(last, dumpTime) : last + moved;
  columns.state[at] = moved !== NEVER ? COMPLETED : started !== NEVER ? STARTED : QUEUED;
}

// Entries of one track that overlap, such as messages, are put into lanes above each other.
function intoLanes(columns, ids) {
  const lanes = [];
  for (const id of ids) {
    let lane = lanes.find((some) => columns.end[some[some.length - 1]] <= columns.begin[id]);
    if (lane === undefined) lanes.push((lane = []));
    lane.push(id);
  }
  return lanes.map((lane) => Int32Array.from(lane));
}

function readTracks(raw, columns) {
  let at = 0;
  return raw.tracks.map((source, index) => {
    const ids = [];
    for (let from = 0; from < source.data.length; from += FIELDS, ++at) {
      readEntry(columns, at, source.data, from, raw.ranks[source.rank].time);
      columns.track[at] = index;
      ids.push(at);
    }
    ids.sort((a, b) => columns.begin[a] - columns.begin[b]);
    return {
      index,
      rank: source.rank,
      group: source.group,
      isMessages: source.messages,
      ids: Int32Array.from(ids),
      lanes: intoLanes(columns, ids.filter((id) => columns.started[id])),
      queued: ids.filter((id) => !columns.started[id]),
    };
  });
}

function operationKey(raw, track, kind, sequence) {
  if (!track.isMessages) return escapedKey(track.group, sequence);
  const ends = kind.is_send ? [track.rank, kind.peer] : [kind.peer, track.rank];
  return escapedKey(track.group, ...ends, sequence);
}

function joinOperations(raw, columns, tracks) {
  const byKey = new Map();
  const list = [];
  for (let id = 0; id < columns.size; ++id) {
    const track = tracks[columns.track[id]];
    const kind = raw.kinds[columns.kind[id]];
    const key = operationKey(raw, track, kind, columns.sequence[id]);
    let operation = byKey.get(key);
    if (operation === undefined) {
      operation = { index: list.length, key, name: kind.name, group: track.group, isMessage: track.isMessages,
        sequence: columns.sequence[id], entries: [] };
      byKey.set(key, operation);
      list.push(operation);
    }
    operation.entries.push(id);
    columns.operation[id] = operation.index;
  }
  return { byKey, list };
}

// Returns when an operation began and ended over all ranks, which rank arrived last, and the time between the first
// and the last arrival.
function measureOperation(operation, columns, tracks) {
  let first = Infinity, last = -Infinity, end = -Infinity;
  operation.failed = operation.unfinished = false;
  operation.lastRank = -1;
  for (const id of operation.entries) {
    end = Math.max(end, columns.end[id]);
    operation.failed ||= columns.result[id] > 0;
    operation.unfinished ||= columns.state[id] !== COMPLETED && columns.result[id] <= 0;
    first = Math.min(first, columns.begin[id]);
    if (!columns.started[id] || columns.begin[id] <= last) continue;
    last = columns.begin[id];
    operation.lastRank = tracks[columns.track[id]].rank;
  }
  operation.begin = first;
  operation.end = end;
  operation.took = end - first;
  operation.spread = operation.entries.length > 1 && last > first ? last - first : 0;
}

function readModel(raw) {
  const columns = makeColumns(countEntries(raw));
  const tracks = readTracks(raw, columns);
  const { byKey, list } = joinOperations(raw, columns, tracks);
  for (const operation of list) measureOperation(operation, columns, tracks);
  return { raw, columns, tracks, operations: list, operationOf: byKey, end: Math.max(1, raw.end) };
}

const kindOf = (model, id) => model.raw.kinds[model.columns.kind[id]];
const trackOf = (model, id) => model.tracks[model.columns.track[id]];
const groupName = (model, group) => model.raw.groups[group].name;
const resultOf = (model, id) => (model.columns.result[id] < 0 ? "" : model.raw.results[model.columns.result[id]]);

function operationTitle(model, operation) {
  if (!operation.isMessage) return `${operation.name} #${operation.sequence}`;
  const [, from, to] = operation.key.split("|");
  return `message #${operation.sequence}, ${from} → ${to}`;
}
