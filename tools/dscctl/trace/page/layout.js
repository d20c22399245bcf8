// The positions of the rows: headings, one row per rank and group, and one row per rank for its messages.

const GUTTER = 132; // width in pixels of the labels on the left
const AXIS = 26; // height in pixels of the time axis at the top
const HEADING = 24;
const ROW_HEIGHTS = [[24, 28], [72, 22], [Infinity, 17]]; // [maximum number of rows, height of a row in pixels]
const LANES_SHOWN = 4;

function trackRow(model, group, rank, isMessages, track) {
  return { group, rank, isMessages, track, missing: !model.raw.ranks[rank].dump };
}

// Returns all rows of a group: its ranks, including those without a dump, and then the messages of ranks that sent
// any.
function rowsOfGroup(model, tracks, group) {
  const find = (rank, isMessages) =>
    tracks.find((track) => track.group === group && track.rank === rank && track.isMessages === isMessages);
  const ranks = model.raw.groups[group].ranks;
  const rows = ranks.map((rank) => trackRow(model, group, rank, false, find(rank, false)));
  const messages = ranks.map((rank) => trackRow(model, group, rank, true, find(rank, true))).filter((row) => row.track);
  return rows.concat(messages);
}

function isShown(filter, row) {
  if (!filter.active) return true;
  return row.track !== undefined && row.track.ids.some((id) => filter.matches[id]);
}

function sectionsByGroup(model, rows) {
  const sections = [];
  model.raw.groups.forEach((group, index) => {
    for (const isMessages of [false, true]) {
      const own = rows.filter((row) => row.group === index && row.isMessages === isMessages);
      const detail = isMessages ? "messages" : plural(group.ranks.length, "rank");
      sections.push({ title: group.name, detail, rows: own.map((row) => ({ ...row, label: `rank ${row.rank}` })) });
    }
  });
  return sections;
}

function sectionsByRank(model, rows) {
  return model.raw.ranks.map((rank, index) => {
    const own = rows.filter((row) => row.rank === index);
    const label = (row) => groupName(model, row.group) + (row.isMessages ? " · msgs" : "");
    return { title: `rank ${index}`, detail: rank.dump ? "" : "no dump", rows: own.map((row) => ({ ...row, label: label(row) })) };
  });
}

// Returns the rows from top to bottom with their positions; `height` is the total height.
function makeLayout(model, order, filter) {
  const tracksOf = model.raw.groups.map((_, group) => model.tracks.filter((track) => track.group === group));
  const all = model.raw.groups.flatMap((_, group) => rowsOfGroup(model, tracksOf[group], group));
  const shown = all.filter((row) => isShown(filter, row));
  const sections = order === "rank" ? sectionsByRank(model, shown) : sectionsByGroup(model, shown);
  const rowHeight = ROW_HEIGHTS.find(([most]) => shown.length <= most)[1];
  const lines = [];
  let y = 0;
  for (const section of sections) {
    if (section.rows.length === 0) continue;
    lines.push({ isHeading: true, title: section.title, detail: section.detail, y, height: HEADING });
    y += HEADING;
    for (const row of section.rows) {
      lines.push({ ...row, isHeading: false, y, height: rowHeight });
      y += rowHeight;
    }
  }
  return { lines, height: y + 8, rowHeight };
}

// Returns the position of a lane in its line: [top, height].
function laneBox(line, lane) {
  const pad = line.height > 20 ? 4 : 2;
  const room = line.height - 2 * pad - 2; // the queue is drawn as a line below
  const lanes = Math.min(LANES_SHOWN, Math.max(1, line.track.lanes.length));
  const height = room / lanes;
  return [line.y + pad + Math.min(lane, lanes - 1) * height, lanes > 1 ? height - 1 : height];
}

function lineAt(layout, y) {
  let low = 0, high = layout.lines.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const line = layout.lines[middle];
    if (y < line.y) high = middle - 1;
    else if (y >= line.y + line.height) low = middle + 1;
    else return line;
  }
  return undefined;
}
