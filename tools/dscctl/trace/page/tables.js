// The facts, the findings, and the tables of operations and stragglers.

const SHOWN = 200; // rows in the table of operations
const FEW_FINDINGS = 4; // up to this number, all findings are shown
const FIRST_FINDINGS = 3; // shown first if there are more

function showFacts(model) {
  const { raw } = model;
  const dumps = raw.ranks.filter((rank) => rank.dump).length;
  const fact = (value, text) => element("li", {}, element("b", {}, value), ` ${text}`);
  const facts = [
    fact(dumps === raw.ranks.length ? countText(dumps) : `${dumps} of ${raw.ranks.length}`, "ranks"),
    fact(countText(raw.groups.length), raw.groups.length === 1 ? "group" : "groups"),
    fact(countText(model.operations.length), "operations"),
    fact(durationText(model.end), "recorded"),
    element("li", {}, raw.started),
  ];
  byId("facts").replaceChildren(...facts);
}

// A click on a finding shows its operation.
function showFindings(model, onChoose) {
  const { findings, problems } = model.raw;
  const made = findings.map((finding) => {
    const mild = ["NO DUMP", "STRAGGLER"].includes(finding.kind) ? " warn" : "";
    const operation = finding.operation === null ? undefined : model.operationOf.get(finding.operation);
    return element("button", { class: `finding${mild}`, onclick: () => operation !== undefined && onChoose(operation) },
      element("b", {}, finding.kind), element("span", {}, finding.text));
  });
  for (const { file, text } of problems)
    made.push(element("div", { class: "finding warn" }, element("b", {}, "NOT USED"), element("span", {}, `${file}: ${text}`)));
  if (made.length === 0)
    made.push(element("div", { class: "finding good" }, element("b", {}, "FINE"),
      element("span", {}, "Nobody holds the others up, nothing failed, everything fits together.")));
  const many = made.length > FEW_FINDINGS;
  byId("findings").replaceChildren(...(many ? [findingsHead(made)] : []), ...made);
}

// A text such as "29 findings: 1 DEADLOCK, 28 LATE", and a button that opens and closes the list.
function findingsHead(made) {
  const counts = new Map();
  for (const finding of made) {
    const kind = finding.firstChild.textContent;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const kinds = [...counts].map(([kind, count]) => `${countText(count)} ${kind}`).join(", ");
  const toggle = element("button", { id: "findings-all" });
  const show = (all) => {
    toggle.textContent = all ? "show the first" : "show all";
    toggle.setAttribute("aria-expanded", String(all));
    byId("findings").classList.toggle("brief", !all);
    made.forEach((finding, index) => {
      finding.hidden = !all && index >= FIRST_FINDINGS;
      finding.title = all ? "" : finding.lastChild.textContent;
    });
  };
  toggle.addEventListener("click", () => show(toggle.getAttribute("aria-expanded") !== "true"));
  show(false);
  return element("div", { class: "findings-head" },
    element("span", {}, element("b", {}, `${countText(made.length)} findings`), `: ${kinds}`), toggle);
}

const OPERATION_COLUMNS = [
  { name: "operation", value: (operation) => operation.name },
  { name: "took", value: (operation) => operation.took },
  { name: "apart", value: (operation) => operation.spread, title: "from the first rank's arrival to the last one's" },
  { name: "last", value: (operation) => operation.lastRank, title: "the rank that came last" },
];

class OperationTable {
  constructor(model, onChoose) {
    this.model = model;
    this.onChoose = onChoose;
    this.sort = 1;
    this.descending = true;
    this.filter = { active: false };
  }

  show(filter = this.filter, chosen = this.chosen) {
    Object.assign(this, { filter, chosen });
    const { value } = OPERATION_COLUMNS[this.sort];
    const sign = this.descending ? -1 : 1;
    const { matches, active } = filter;
    const found = this.model.operations.filter((operation) => !active || operation.entries.some((id) => matches[id]));
    found.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    const rows = found.slice(0, SHOWN).map((operation) => this.row(operation));
    const more = found.length > SHOWN ? [element("p", {}, `the first ${SHOWN} of ${countText(found.length)}`)] : [];
    byId("operations").replaceChildren(
      element("table", {}, element("thead", {}, this.head()), element("tbody", {}, ...rows)), ...more);
  }

  head() {
    return element("tr", {}, ...OPERATION_COLUMNS.map(({ name, title }, index) => {
      const chosen = index === this.sort;
      const arrow = chosen ? (this.descending ? " ▾" : " ▴") : "";
      const sort = () => {
        this.descending = chosen ? !this.descending : index !== 0;
        this.sort = index;
        this.show();
      };
      return element("th", { title, "aria-sort": chosen ? (this.descending ? "descending" : "ascending") : false },
        element("button", { onclick: sort }, name + arrow));
    }));
  }

  row(operation) {
    const choose = () => this.onChoose(operation);
    const onkeydown = (event) => event.key === "Enter" && choose();
    const name = element("td", { class: operation.failed ? "bad" : false }, operationTitle(this.model, operation), " ",
      element("small", {}, groupName(this.model, operation.group)));
    return element("tr", { tabindex: 0, class: operation === this.chosen ? "current" : false, onclick: choose, onkeydown }, name,
      element("td", {}, durationText(operation.took)),
      element("td", {}, operation.spread > 0 ? durationText(operation.spread) : "–"),
      element("td", {}, operation.spread > 0 ? String(operation.lastRank) : "–"));
  }
}

// The ranks that cost the others most time come first.
function showStragglers(model, onChoose) {
  const rows = model.raw.lateness.filter((row) => row.operations > 0)
    .sort((a, b) => b.others_waited_ns - a.others_waited_ns)
    .map((row) => {
      const worst = model.operationOf.get(row.worst);
      const share = Math.round((100 * row.last) / row.operations);
      const link = worst === undefined ? "–" : element("button", { onclick: () => onChoose(worst) }, durationText(row.worst_delay_ns));
      return element("tr", {}, element("td", {}, String(row.rank)), element("td", {}, `${countText(row.last)} `, element("small", {}, `${share} %`)),
        element("td", {}, durationText(row.others_waited_ns)), element("td", {}, durationText(row.mean_delay_ns)), element("td", {}, link));
    });
  const titles = ["rank", "last in", "all others waited", "mean delay", "worst"];
  const head = element("tr", {}, ...titles.map((name) => element("th", {}, name)));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  byId("stragglers").replaceChildren(rows.length > 0 ? table : element("p", {}, "No collective was recorded by two ranks."));
}

function startTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const open = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      open(next);
      next.focus();
    });
  });
  open(tabs[0]);
}
