"""The timeline in a browser shows what was recorded, and reacts to its user."""

import shutil
import sys
import time

import tool
from dumps import MS, SECOND, repeated, training

if __name__ == "__main__" and not (shutil.which("chromium") and shutil.which("chromedriver")):
    print("skipped: there is no chromium with chromedriver")
    sys.exit(77)
if __name__ == "__main__":
    tool.main(__file__, "selenium")

import chrome
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ITERATIONS = 20
FRAME_LIMIT_S = 2


@pytest.fixture(scope="module")
def browser():
    with chrome.started() as driver:
        yield driver


@pytest.fixture(scope="module")
def hung(tmp_path_factory):
    """Four ranks, of which the third does not call the last operation. Also returns the entries."""
    job, now = training(4, ITERATIONS, slow_rank=3)
    start = max(now.values()) + MS
    job.collective({0: start, 1: start + MS, 3: start + 2 * MS}, name="all_gather")
    job.dump_times = dict.fromkeys(range(4), start + 3 * SECOND)
    folder = job.write(tmp_path_factory.mktemp("hung"))
    assert tool.merge(folder)[0] == tool.FINDINGS
    return folder / "timeline.html", sum(map(len, job.entries.values()))


class Page:
    """The page as a user sees it, and its console."""

    def __init__(self, browser, path):
        self.browser = browser
        browser.get_log("browser")  # drops the messages of an earlier page
        browser.get(path.as_uri())

    def js(self, script, *arguments):
        return self.browser.execute_script(f"const page = timelinePage; {script}", *arguments)

    def drawn(self):
        """Waits until the last change is on the screen."""
        self.browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => setTimeout(done))")
        return self

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def entry(self, rank, name, number):
        return self.js(
            """const { columns, tracks, raw } = page.model;
            for (let id = 0; id < columns.size; ++id)
              if (tracks[columns.track[id]].rank === arguments[0] && raw.kinds[columns.kind[id]].name === arguments[1] &&
                columns.sequence[id] === arguments[2] && raw.groups[tracks[columns.track[id]].group].name !== "pair 1") return id;""",
            rank, name, number,
        )  # fmt: skip

    def show(self, identity):
        """Zooms to an entry's operation without choosing it."""
        self.js(
            """const operation = page.model.operations[page.model.columns.operation[arguments[0]]];
            page.goTo(operation); page.choose(undefined); page.draw();""",
            identity,
        )
        return self.drawn()

    def move_to(self, identity, click=False):
        actions = ActionChains(self.browser, duration=0)
        x, y = (round(v) for v in self.js("return page.placeOf(arguments[0])", identity))
        actions.w3c_actions.pointer_action.move_to_location(x, y)
        if click:
            actions.w3c_actions.pointer_action.click()
        actions.perform()
        return self.drawn()

    def facts(self):
        names = [item.text for item in self.all("#tip dt")]
        return dict(zip(names, (item.text for item in self.all("#tip dd"))))

    def range(self):
        return self.js("return [page.view.from, page.view.to]")

    def rows(self):
        return self.js("return page.layout.lines.filter((line) => !line.isHeading).map((line) => [line.rank, line.label])")

    def has_color(self, name, identity=None, line=None):
        """Returns whether a color of the theme occurs near an entry, or in a row."""
        return self.js(
            """const [name, id, index] = arguments;
            const probe = document.createElement("canvas").getContext("2d");
            probe.fillStyle = page.theme[name];
            probe.fillRect(0, 0, 1, 1);
            const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
            const line = id !== null ? page.lineOf(id) : page.layout.lines[index];
            const scale = devicePixelRatio;
            const top = (26 + line.y - page.scroller.scrollTop) * scale;
            const pixels = page.painter.pen.getImageData(132 * scale, top, page.view.width * scale, line.height * scale).data;
            for (let at = 0; at < pixels.length; at += 4)
              if (Math.abs(pixels[at] - r) + Math.abs(pixels[at + 1] - g) + Math.abs(pixels[at + 2] - b) < 6) return true;
            return false;""",
            name, identity, line,
        )  # fmt: skip

    def console(self):
        """Returns errors and warnings, except those about these tests reading pixels."""
        log = self.browser.get_log("browser")
        return [e for e in log if e["level"] in ("SEVERE", "WARNING") and "getImageData" not in e["message"]]


@pytest.fixture
def page(browser, hung):
    opened = Page(browser, hung[0]).drawn()
    yield opened
    assert opened.console() == []


def test_shows_what_was_recorded(page, hung):
    assert page.find("#matches").text == f"{hung[1]} entries"
    assert page.find("#facts").text.startswith("4\nranks") or page.find("#facts").text.startswith("4 ranks")
    labels = page.rows()
    # the rows are world, its messages, and both pairs
    assert [rank for rank, _ in labels] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    headings = page.js("return page.layout.lines.filter((line) => line.isHeading).map((line) => `${line.title}: ${line.detail}`)")
    assert headings == ["world: 4 ranks", "world: messages", "pair 0: 2 ranks", "pair 1: 2 ranks"]
    for color in ("wait", "move"):
        assert page.has_color(color, line=1), color
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_screenshot_is_not_empty(page, tmp_path):
    assert page.browser.save_screenshot(str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 20_000
    colors = page.js(
        """const { canvas, pen } = page.painter;
        const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size;"""
    )
    assert colors > 10


def test_hover_shows_all_fields(page):
    entry = page.entry(1, "all_reduce", 7)
    page.show(entry).move_to(entry)
    assert page.find("#tip strong").text == "all_reduce #7"
    facts = page.facts()
    assert facts | {
        "rank": "1",
        "group": "world",
        "number": "7",
        "state": "completed",
        "size": "262,144 × f32, 1 MiB",
        "reduction": "sum",
        "path": "direct",
        "moved": "1.20 ms",
        "queued": "200 µs",
        "time-out": "300 s",
    } == facts
    assert {"came", "called", "waited"} < facts.keys()
    page.js("page.leave()")
    assert not page.find("#tip").is_displayed()


def test_unfinished_operations_say_so(page):
    entry = page.entry(0, "all_gather", 85)
    page.show(entry).move_to(entry)
    facts = page.facts()
    assert facts["state"] == "waiting for others" and facts["waited"] == "3.00 s so far" and "moved" not in facts


def test_click_highlights_the_operation_on_all_ranks(page):
    entries = [page.entry(rank, "all_reduce", 7) for rank in range(4)]
    page.show(entries[0])
    assert not any(page.has_color("chosen", entry) for entry in entries)
    page.move_to(entries[2], click=True)
    assert page.find("#chosen h2").text == "all_reduce #7"
    assert [row.text.split()[0] for row in page.all("#chosen tbody tr")] == ["0", "1", "2", "3"]
    page.js("page.leave()")
    page.drawn()
    assert all(page.has_color("chosen", entry) for entry in entries)
    assert page.find("#spoken").get_attribute("textContent").startswith("rank 2, group world, number 7")
    page.find("body").send_keys(Keys.ESCAPE)
    page.drawn()
    assert page.find("#chosen h2").text == "No operation chosen"
    assert not page.has_color("chosen", entries[0])


def test_click_on_a_message_shows_both_ends(page):
    entry = page.entry(0, "send", 3)
    page.show(entry).move_to(entry, click=True)
    assert page.find("#chosen h2").text == "message #3, 0 → 1"
    assert len(page.all("#chosen tbody tr")) == 2
    assert page.has_color("chosen", page.entry(1, "recv", 3))


def test_filter(page, hung):
    box = page.find("#filter")
    box.send_keys("broadcast")
    page.drawn()
    assert page.find("#matches").text == f"16 of {hung[1]}"
    assert len(page.rows()) == 4 and len(page.all("#operations tbody tr")) == 4
    box.send_keys(" rank:2")
    assert page.drawn().rows() == [[2, "rank 2"]] and page.find("#matches").text == f"4 of {hung[1]}"
    box.clear()
    box.send_keys("pair")
    assert len(page.drawn().rows()) == 4
    box.clear()
    box.send_keys("unfinished")
    assert page.drawn().find("#matches").text == f"3 of {hung[1]}"
    box.clear()
    box.send_keys("no such thing")
    assert page.drawn().rows() == [] and page.find("#matches").text == f"0 of {hung[1]}"
    page.js("page.setFilter('')")
    assert len(page.drawn().rows()) == 12


def test_zoom_and_pan(page):
    whole = page.range()
    canvas = page.find("#rows")
    page.js("page.at = page.view.time(500)")
    left = page.js("return page.canvas.getBoundingClientRect().left")
    rectangle = page.js("const box = page.canvas.getBoundingClientRect(); return [box.width, box.height]")
    origin = ScrollOrigin.from_element(canvas, round(500 - rectangle[0] / 2), 0)
    for _ in range(5):
        ActionChains(page.browser, duration=0).scroll_from_origin(origin, 0, -300).perform()
    near = page.drawn().range()
    assert near[1] - near[0] < (whole[1] - whole[0]) / 5
    assert abs(page.js("return page.view.x(page.at)") - 500) < 3, left
    ActionChains(page.browser, duration=0).drag_and_drop_by_offset(canvas, -100, 0).perform()
    moved = page.drawn().range()
    per_pixel = (near[1] - near[0]) / page.js("return page.view.width")
    assert abs((moved[0] - near[0]) / per_pixel - 100) < 2 and abs((moved[1] - moved[0]) - (near[1] - near[0])) < 1
    assert page.find("#chosen h2").text == "No operation chosen"  # a drag must not count as a click
    page.find("#zoom-out").click()
    assert page.range()[1] - page.range()[0] > moved[1] - moved[0]
    page.find("#fit").click()
    assert page.range() == pytest.approx(whole)


def test_keys(page):
    canvas = page.find("#rows")
    whole = page.range()
    canvas.send_keys(Keys.ARROW_RIGHT)
    first = page.js("return page.entry")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.js("return page.model.columns.sequence[page.entry] - page.model.columns.sequence[arguments[0]]", first) == 2
    operation = page.js("return page.chosen.index")
    canvas.send_keys(Keys.ARROW_DOWN)
    assert page.js("return page.chosen.index") == operation
    assert page.js("return page.lineOf(page.entry).rank") == 1
    canvas.send_keys(Keys.ENTER, "+", "+", "d")
    assert page.range()[1] - page.range()[0] < (whole[1] - whole[0]) / 100
    canvas.send_keys("0")
    assert page.range() == pytest.approx(whole)
    canvas.send_keys("/", "broadcast")
    assert page.find("#matches").text.startswith("16 of")
    page.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.browser.switch_to.active_element.send_keys("?")
    assert page.find("#help").is_displayed()


def test_findings_lead_to_the_operation(page):
    (finding,) = page.all("#findings .finding")
    assert finding.text.startswith("LATE") and 'rank 2 has not called collective 85 (all_gather) of group "world"' in finding.text
    finding.click()
    page.drawn()
    assert page.find("#chosen h2").text == "all_gather #85"
    assert page.all("#chosen tbody tr")[2].text == "2 no record"
    missing = page.js("return page.layout.lines.findIndex((line) => !line.isHeading && line.rank === 2 && !line.isMessages)")
    assert page.has_color("fail-soft", line=missing)
    assert not page.has_color("fail-soft", line=missing - 1)


def test_tables(page):
    column = "return [...document.querySelectorAll(`#operations tbody td:nth-child(${arguments[0]})`)].map((cell) => cell.innerText)"
    took = page.js(column, 2)
    assert took[0] == "3.00 s" and len(took) == len(set(page.js("return page.model.operations.map((o) => o.key)")))
    page.all("#operations th button")[0].click()
    names = [text.split()[0] for text in page.js(column, 1)]
    assert names == sorted(names)
    page.find("#operations tbody tr").click()
    assert page.find("#chosen h2").text.startswith("all_gather #")
    page.find("#tab-stragglers").click()
    ranks = [row.text.split()[0] for row in page.all("#stragglers tbody tr")]
    # rank 3 is slow, and its partner, rank 2, waits for it
    assert sorted(ranks) == ["0", "1", "2", "3"] and ranks[0] in "23"
    assert not page.find("#operations").is_displayed()


def test_order_by_rank(page):
    page.find("#by-rank").click()
    assert page.drawn().rows()[:4] == [[0, "world"], [0, "world · msgs"], [0, "pair 0"], [1, "world"]]
    assert page.find("#by-rank").get_attribute("aria-pressed") == "true"


def test_follows_the_systems_colors(page):
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.browser.execute_script(background)
    page.find("#theme").click()
    dark = page.drawn().browser.execute_script(background)
    assert light != dark and page.has_color("wait", line=1)
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    page.browser.refresh()
    assert page.drawn().browser.execute_script(background) == dark
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_failures_and_missing_ranks_are_marked(browser, tmp_path):
    job, now = training(4, 2)
    start = max(now.values())
    job.collective({0: start, 2: start}, ended=start + 3 * SECOND, name="all_gather")
    folder = job.write(tmp_path, without=(1,))
    tool.merge(folder)
    page = Page(browser, folder / "timeline.html").drawn()
    kinds = [item.text for item in page.all("#findings .finding b")]
    assert kinds == ["LATE", "FAILED", "NO DUMP"]
    assert [rank for rank, _ in page.rows()][:4] == [0, 1, 2, 3]
    assert page.has_color("fail", page.entry(0, "all_gather", 9))
    assert page.has_color("hatch", line=2) and page.has_color("fail", line=2)
    page.find("#filter").send_keys("failed")
    assert page.find("#matches").text.startswith("2 of")
    assert page.console() == []


def test_many_findings_are_counted_and_shown_on_request(browser, tmp_path):
    job, now = training(16, 2)
    start = max(now.values())
    job.collective({rank: start for rank in range(16) if rank != 2}, name="all_gather")
    for pair in range(8):
        job.collective({2 * pair: start + SECOND}, f"pair {pair}")
    job.dump_times = dict.fromkeys(range(16), start + 5 * SECOND)
    folder = job.write(tmp_path, without=(5,))
    _, report = tool.merge(folder)
    page = Page(browser, folder / "timeline.html").drawn()
    shown = lambda: [item for item in page.all("#findings .finding") if item.is_displayed()]
    count = len(report["findings"])
    assert count > 8 and page.find(".findings-head span").text.startswith(f"{count} findings: ")
    assert len(shown()) == 3 and len({item.size["height"] for item in shown()}) == 1  # one line for each
    page.find("#findings-all").click()
    assert len(page.drawn().all("#findings .finding")) == len(shown()) == count
    box = page.find("#findings").rect
    assert box["height"] <= 0.4 * page.browser.execute_script("return innerHeight") + 1
    assert page.find("#rows").rect["height"] > 100  # the timeline still has room
    page.find("#findings-all").click()
    assert len(shown()) == 3 and page.console() == []


def test_sixty_four_ranks(browser, tmp_path):
    """As many ranks as fit on a host, and as many operations as are recorded."""
    folder, entries = repeated(training(2, 250, buckets=6)[0], 64, tmp_path)
    assert tool.merge(folder)[0] == tool.FINE
    start = time.monotonic()
    page = Page(browser, folder / "timeline.html").drawn()
    load_s = time.monotonic() - start
    assert page.find("#matches").text == f"{entries:,} entries" and entries > 64 * 2000
    assert len(page.rows()) == 64 + 64 + 64
    frame_s = page.js("const start = performance.now(); for (let i = 0; i < 10; ++i) page.paint(); return (performance.now() - start) / 1e4")
    filter_s = page.js("const start = performance.now(); page.setFilter('broadcast rank:7'); return (performance.now() - start) / 1e3")
    assert page.drawn().rows() == [[7, "rank 7"]]
    print(f"{entries} entries: loaded in {load_s:.2f} s, a frame takes {frame_s * 1000:.1f} ms, a filter {filter_s * 1000:.0f} ms")
    assert frame_s < FRAME_LIMIT_S and filter_s < FRAME_LIMIT_S
    assert page.console() == []
