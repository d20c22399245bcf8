"""The page of dscctl schedule --html in a browser: orders and arithmetic equal the library's; zoom, sliders and hover
work."""

import json
import random
import shutil
import subprocess
import sys

import tool

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
from selenium.webdriver.support.ui import WebDriverWait

import libdsc as dsc

NAMES = ("gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v")


@pytest.fixture(scope="module")
def browser():
    with chrome.started() as driver:
        yield driver


def open_page(browser, folder, *args, command="schedule"):
    file = folder / "page.html"
    made = subprocess.run([tool.DSCCTL, command, *args, "--html", str(file)], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0 and (command == "plan" or made.stdout == ""), made.stderr
    browser.get(file.as_uri())
    assert [it for it in browser.get_log("browser") if it["level"] == "SEVERE"] == []


def plan_of(schedule):
    """Returns a schedule in the page's format."""
    ops = {"forward": 2, "backward": 3, "backward_input": 4, "backward_weight": 5}
    orders = [[[ops[it.op], it.chunk, it.micro_batch, int(it.overlaps)] for it in order] for order in schedule.orders()]
    return {
        "stages": schedule.stages,
        "chunks": schedule.chunks,
        "microBatches": schedule.micro_batches,
        "placement": schedule.placement,
        "forwardOnly": schedule.forward_only,
        "orders": orders,
    }


def test_the_same_arithmetic(browser, tmp_path):
    open_page(browser, tmp_path)
    draw = random.Random(7)
    for _ in range(60):
        stages = draw.randint(1, 5)
        only = draw.random() < 0.2
        schedule = dsc.PipeSchedule(
            draw.choice(NAMES), stages=stages, micro_batches=stages * draw.randint(2, 4), forward_only=only
        )
        parts = stages * schedule.chunks
        lists = [[draw.uniform(0.5, 9) for _ in range(draw.choice((1, parts)))] for _ in range(3)]
        comm, overlap = draw.uniform(0, 3), draw.uniform(0.5, 1)
        per_part = ([draw.uniform(0, 9) for _ in range(draw.choice((1, parts)))] for _ in range(4))
        moving, gradients, activation, fixed = per_part
        bucket, latency, rate = draw.choice((0, 2.5)), draw.uniform(0, 2), draw.choice((0, 0.7))
        reduce = {"bytes": gradients, "bucket": bucket, "latency": latency, "rate": rate}
        costs = dict(zip(("forward", "backwardInput", "backwardWeight"), lists), comm=comm, overlap=overlap)
        costs |= {"moving": moving, "reduce": reduce, "activation": activation, "fixed": fixed}
        got = browser.execute_script(
            "const r = schedulePage.simulate(arguments[0], arguments[1]);"
            "return [r.makespan, r.stages.map((s) => [s.busy, s.start, s.end, s.peak, s.peakBytes, s.memory])]",
            plan_of(schedule),
            costs,
        )
        it = dsc.simulate_pipeline(
            schedule, forward=lists[0], backward_input=lists[1], backward_weight=lists[2], comm=comm, overlap=overlap,
            message_bytes=moving, bytes_per_time=1, gradient_bytes=gradients, bucket_bytes=bucket,
            reduce_latency=latency, reduce_bytes_per_time=rate, activation_bytes=activation, static_bytes=fixed,
        )  # fmt: skip
        assert got[0] == pytest.approx(it.makespan)
        for stage, (busy, start, end, peak, peak_bytes, memory) in enumerate(got[1]):
            assert peak_bytes == pytest.approx(it.peak_bytes[stage]) and peak_bytes == max(held for _, held in memory)
            assert memory[-1][1] == pytest.approx(memory[0][1]) and [at for at, _ in memory] == sorted(at for at, _ in memory)
            assert busy == pytest.approx(it.busy[stage]) and peak == it.peak_activations[stage]
            assert end - start - busy == pytest.approx(it.own_window_idle[stage], abs=1e-9)


def sizes_of(browser):
    return [tuple(map(int, key.split("x"))) for key in browser.execute_script("return Object.keys(schedulePage.data.schedules[0].sizes)")]


PRICE = """
return arguments[0].map(([stages, microBatches]) => {
  const plan = schedulePage.planOf(schedulePage.data.schedules[0], stages, microBatches);
  if (typeof plan === "string") return plan;
  const costs = {forward: [2], backwardInput: [3], backwardWeight: [1.5], comm: 0.25, overlap: 0.75};
  const result = schedulePage.simulate(plan, costs);
  const orders = stages * microBatches <= 48 ? plan.orders : null;
  return [result.makespan, Math.max(...result.stages.map((stage) => stage.peak)), orders];
});
"""


@pytest.mark.parametrize("name", NAMES)
def test_orders_of_all_sizes_are_those_of_the_library(browser, tmp_path, name):
    """The page decodes the orders and simulates them."""
    chunks = ("--chunks", "3") if name in ("interleaved_1f1b", "looped_bfs") else ()
    open_page(browser, tmp_path, "--kind", name, *chunks)
    sizes = sizes_of(browser)
    assert {(1, 1), (4, 8), (8, 16), (16, 64)} <= set(sizes) and len(sizes) >= 200
    assert (tmp_path / "page.html").stat().st_size < 3e6
    there = 0
    for (stages, micro_batches), got in zip(sizes, browser.execute_script(PRICE, sizes)):
        try:
            schedule = dsc.PipeSchedule(name, stages=stages, micro_batches=micro_batches, chunks=3 if chunks else None)
        except dsc.InvalidArgError as error:
            assert got.startswith("there is no such schedule: ") and got.split(", expected")[1] in str(error)
            continue
        it = dsc.simulate_pipeline(schedule, forward=2, backward_input=3, backward_weight=1.5, comm=0.25, overlap=0.75)
        assert got[:2] == [pytest.approx(it.makespan), max(it.peak_activations)]
        assert got[2] is None or got[2] == plan_of(schedule)["orders"]
        there += 1
    # some sizes do not exist, because the micro-batches of some schedules must be a multiple of the stages
    assert there >= 60


def test_sizes_of_many_schedules_are_bounded(browser, tmp_path):
    kinds = [word for name in NAMES for word in ("--kind", name)]
    open_page(browser, tmp_path, *kinds, "--stages", "16", "--micro-batches", "64")
    assert (tmp_path / "page.html").stat().st_size < 4e6
    assert len(browser.find_elements(By.CSS_SELECTOR, "section:not(.missing)")) == len(NAMES)


def test_an_order_without_a_rule_is_there_as_it_is(browser, tmp_path):
    """The micro-batches follow no rule, so the page contains the whole list and has no sliders for sizes."""
    file = tmp_path / "mine.csv"
    file.write_text("0F1,0F0,0F2,0B2,0B0,0B1\n")
    open_page(browser, tmp_path, "--from", str(file))
    got = browser.execute_script("return schedulePage.views[0].plan.orders")
    assert got == [[[2, 0, 1, 0], [2, 0, 0, 0], [2, 0, 2, 0], [3, 0, 2, 0], [3, 0, 0, 0], [3, 0, 1, 0]]]
    assert not browser.find_elements(By.ID, "stages") and not browser.find_elements(By.ID, "microBatches")


def test_side_by_side(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b", "--kind", "zb_v")
    titles = [it.text for it in browser.find_elements(By.TAG_NAME, "h2")]
    assert titles[0].startswith("1f1b: 4 stages, 8") and titles[1].startswith("zb_v: 4 stages x 2 chunks")
    numbers = [it.text for it in browser.find_elements(By.CLASS_NAME, "numbers")]
    assert numbers[0].startswith("makespan 33 ") and numbers[1].startswith("makespan 25.5 (100.0 %")
    assert "whole stage" in browser.find_element(By.ID, "scale").text
    assert browser.find_element(By.CSS_SELECTOR, "section.best h2").text.startswith("zb_v")


def slide(browser, name, value):
    script = "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('input'))"
    browser.execute_script(script, name, value)


def choose(browser, name, value):
    """Chooses one of the sizes of a slider."""
    slide(browser, name, browser.execute_script("return schedulePage.data[arguments[0]]", name).index(value))


def numbers_of(browser):
    return [it.text for it in browser.find_elements(By.CLASS_NAME, "numbers")]


def test_sliders_for_sizes(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b", "--kind", "interleaved_1f1b")
    choose(browser, "stages", 8)
    choose(browser, "microBatches", 32)
    titles = [it.text for it in browser.find_elements(By.CSS_SELECTOR, "h2 .title")]
    assert titles == ["1f1b: 8 stages, 32 micro-batches", "interleaved_1f1b: 8 stages x 2 chunks, 32 micro-batches"]
    longest = dsc.simulate_pipeline("1f1b", 8, 32).makespan
    shortest = dsc.simulate_pipeline("interleaved_1f1b", 8, 32, chunks=2, forward=0.5, backward_input=0.5, backward_weight=0.5).makespan
    assert [float(text.split()[1]) for text in numbers_of(browser)] == [longest, shortest]
    choose(browser, "stages", 4)
    choose(browser, "microBatches", 9)
    plain, interleaved = browser.find_elements(By.TAG_NAME, "section")
    assert "there is no such schedule" in interleaved.text and "micro-batches is 9" in interleaved.text.replace("_", "-")
    assert not interleaved.find_element(By.TAG_NAME, "canvas").is_displayed() and plain.find_element(By.TAG_NAME, "canvas").is_displayed()


def test_a_limit_of_memory(browser, tmp_path):
    """1f1b needs 4 micro-batches of 1 GB and 3 GB of weights. looped_bfs is faster and needs all 8 micro-batches."""
    open_page(browser, tmp_path, "--kind", "1f1b", "--kind", "looped_bfs", "--activation-bytes", "1GB", "--static-bytes", "3GB")
    badges = lambda: [it.text for it in browser.find_elements(By.CLASS_NAME, "badges")]  # noqa: E731
    assert badges() == ["", "shortest"]
    slide(browser, "limit", 8e9)
    assert badges() == ["shortest", "does not fit"]
    assert "needs 11 GB, which is more than 8" in numbers_of(browser)[1]
    slide(browser, "limit", 5e9)
    assert badges() == ["does not fit"] * 2
    slide(browser, "limit", 1e12)  # the right end of the slider
    assert badges() == ["", "shortest"]


TEXTS = """
const texts = [], was = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) { texts.push(text); was.call(this, text, ...rest); };
schedulePage.price();
CanvasRenderingContext2D.prototype.fillText = was;
return texts;
"""


def test_axes_and_memory_over_time(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b")
    texts = browser.execute_script(TEXTS)
    assert [it for it in texts if it[0].isdigit()] == ["0", "5", "10", "15", "20", "25", "30"] and "time" in texts
    assert [it for it in texts if it.startswith("≤")] == ["≤ 4 held", "≤ 3 held", "≤ 2 held", "≤ 1 held"]
    memory = browser.execute_script("return schedulePage.views[0].result.stages[3].memory")
    # an activation is in memory from its forward pass to the end of its backward pass
    assert memory[:5] == [[0, 0], [3, 1], [6, 0], [6, 1], [9, 0]]


def test_times_have_units_where_they_are_known(browser, tmp_path):
    line = {"ranks": 2, "latency_us": 1, "bytes_per_s": 1e9}
    network = tmp_path / "network.json"
    network.write_text(json.dumps({"format": "libdsc network", "version": 1, "messages": [line], "all_reduces": [line]}))
    passes = ["--forward", "1000", "--backward-input", "1000", "--backward-weight", "1000"]
    open_page(browser, tmp_path, "--network", str(network), *passes)
    it = dsc.simulate_pipeline("1f1b", 4, 8, forward=1, backward_input=1, backward_weight=1, comm=0.001)
    expected = f"makespan {it.makespan:.4g} ms, a stage idles at most {max(it.own_window_idle):.4g} ms between its first and last operation"
    assert numbers_of(browser) == [expected]
    texts = browser.execute_script(TEXTS)
    assert "time, ms" in texts and {"0", "5", "30"} <= set(texts)


def window(browser):
    return browser.execute_script("return [schedulePage.shown.from, schedulePage.shown.to]")


def wait_for_drawing(browser):
    """Waits for the next frame, in which moves are drawn."""
    WebDriverWait(browser, 60).until(lambda it: it.execute_script("return !isDue"))


def press(browser, key):
    browser.find_element(By.TAG_NAME, "body").send_keys(key)
    wait_for_drawing(browser)
    return window(browser)


def test_large_pictures_are_zoomed_and_moved(browser, tmp_path):
    """By wheel, mouse, keys and buttons. Labels appear when there is room for them."""
    open_page(browser, tmp_path, "--stages", "16", "--micro-batches", "64")
    assert window(browser) == [0, 237] and not any(it.startswith("B") for it in browser.execute_script(TEXTS))
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    browser.execute_script("arguments[0].scrollIntoView()", canvas)
    pointed = browser.execute_script("return schedulePage.views[0].picture.timeAt(arguments[0].clientWidth / 2)", canvas)
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).perform()
    WebDriverWait(browser, 60).until(lambda it: window(it)[1] < 237)
    wait_for_drawing(browser)
    start, end = window(browser)
    assert end - start == pytest.approx(237 / 1.0015**300)
    assert browser.execute_script("return schedulePage.views[0].picture.timeAt(arguments[0].clientWidth / 2)", canvas) == pytest.approx(pointed, rel=0.01)
    for _ in range(3):
        browser.find_element(By.ID, "zoom-in").click()
    wait_for_drawing(browser)
    start, end = window(browser)
    assert end - start == pytest.approx(237 / 1.0015**300 * 0.7**3)
    labels = {it for it in browser.execute_script(TEXTS) if it[0] in "BF"}
    assert len(labels) > 40
    ActionChains(browser).drag_and_drop_by_offset(canvas, -100, 0).perform()
    wait_for_drawing(browser)
    moved = window(browser)
    assert moved[0] > start and moved[1] - moved[0] == pytest.approx(end - start)
    assert press(browser, "\ue012")[0] == pytest.approx(moved[0] - (end - start) / 8)  # moved to the left
    assert press(browser, "\ue014") == pytest.approx(moved)
    assert press(browser, "+")[1] < moved[1] and press(browser, "-") == pytest.approx(moved)
    assert "of 237" in browser.find_element(By.ID, "scale").text
    assert press(browser, "0") == [0, 237]
    press(browser, "+")
    browser.find_element(By.ID, "reset").click()
    wait_for_drawing(browser)
    assert window(browser) == [0, 237] and not browser.find_element(By.ID, "reset").is_enabled()
    choose(browser, "stages", 4)  # a picture that was shown as a whole is still shown as a whole
    assert window(browser) == [0, 201]


def test_sliders_price_again(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b", "--stages", "2", "--micro-batches", "4")
    assert browser.find_element(By.CLASS_NAME, "numbers").text.startswith("makespan 15, ")
    browser.execute_script(
        "const s = document.getElementById('comm'); s.value = 1; s.dispatchEvent(new Event('input'))"
    )
    assert browser.find_element(By.CLASS_NAME, "numbers").text.startswith("makespan 19, ")


def test_hover_shows_the_operation(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "zb_h1")
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    size = canvas.size
    place = browser.execute_script("const v = schedulePage.views[0]; return [LEFT + 0.5 * v.scale, ROW / 2]")
    ActionChains(browser).move_to_element_with_offset(
        canvas, int(place[0] - size["width"] / 2), int(place[1] - size["height"] / 2)
    ).perform()
    tip = browser.find_element(By.ID, "tip")
    assert tip.is_displayed() and tip.text.startswith("forward of micro-batch 0\nstage 0, chunk 0, part 0\n0 to 1")


def test_hover_shows_memory(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b", "--activation-bytes", "2GB")
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    size = canvas.size
    place = browser.execute_script("const v = schedulePage.views[0]; return [LEFT + 2.5 * v.scale, ROW + v.picture.strip / 2]")
    ActionChains(browser).move_to_element_with_offset(
        canvas, int(place[0] - size["width"] / 2), int(place[1] - size["height"] / 2)
    ).perform()
    tip = browser.find_element(By.ID, "tip")
    assert tip.is_displayed() and tip.text.startswith("stage 0 holds 6 GB\nat 2.")


COLUMNS = "forward_us,backward_input_us,backward_weight_us,weight_bytes,activation_bytes,output_bytes"


@pytest.mark.parametrize("tied", [[], [0, 7]])
def test_the_best_plans_side_by_side(browser, tmp_path, tied):
    """Each plan has its own costs, messages and reductions, and the times in the table."""
    draw, layers = random.Random(3), tmp_path / "layers.csv"
    lines = [[str(draw.randint(1, 40)) for _ in range(6)] for _ in range(8)]
    for i in tied:
        lines[i][3] = "30"
    named = (",".join([*line, "words" if i in tied else ""]) for i, line in enumerate(lines))
    layers.write_text("\n".join([COLUMNS + ",tied", *named]))
    asked = ["--layers", str(layers), "--devices", "8", "--batch", "16", "--latency-us", "3", "--bandwidth", "8MB/s"]
    # with these options the plan has messages
    asked += ["--reduce-latency-us", "5", "--reduce-bandwidth", "4MB/s", "--bucket", "16", "--overhead-us", "1", "--stages", "2,4,8"]
    open_page(browser, tmp_path, *asked, command="plan")
    table = subprocess.run([tool.DSCCTL, "plan", *asked, "--json"], capture_output=True, text=True, timeout=60)
    rows = json.loads(table.stdout)["rows"][:5]
    makespans = browser.execute_script("return schedulePage.views.map((view) => view.result.makespan)")
    assert makespans == pytest.approx([row["step_us"] for row in rows])
    assert any(row["tied_us"] > 0 for row in rows) == bool(tied)
    assert len({row["replicas"] for row in rows}) > 1 or any(row["network_us"] > 0 for row in rows)
    titles = [it.text for it in browser.find_elements(By.TAG_NAME, "h2")]
    assert [title.split(" on ")[0] for title in titles] == [row["schedule"] for row in rows]
    browser.execute_script("const s = document.getElementById('comm'); s.value = 0; s.dispatchEvent(new Event('input'))")
    without = browser.execute_script("return schedulePage.views.map((view) => view.result.makespan)")
    assert all(less <= more for less, more in zip(without, makespans)) and without != makespans
    assert browser.find_element(By.ID, "note").text == json.loads(table.stdout)["assumed"]
    badges = [it.text for it in browser.find_elements(By.CLASS_NAME, "badges")]
    assert badges[0].startswith("recommended") and not any("recommended" in it for it in badges[1:])
    assert all(" us" in text for text in numbers_of(browser))
    assert not browser.find_elements(By.ID, "stages") and browser.find_element(By.ID, "limit")


def test_the_page_of_plans_begins_with_the_memory_of_a_device(browser, tmp_path):
    layers = tmp_path / "layers.csv"
    layers.write_text("\n".join([COLUMNS, *["10,10,10,1000000,2000000,5"] * 4]))
    open_page(browser, tmp_path, "--layers", str(layers), "--devices", "2", "--batch", "8", "--memory", "40MB", "--bandwidth", "1GB/s", command="plan")
    label = browser.find_element(By.XPATH, "//label[input[@id='limit']]")
    assert "40 MB" in label.text
    badges = [it.text for it in browser.find_elements(By.CLASS_NAME, "badges")]
    assert badges[0] == "recommendedshortest" and not any("fit" in it for it in badges)
