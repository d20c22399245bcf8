"""The page of dscctl schedule --html in a browser: its arithmetic is the library's, and sliders and hover work."""

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
from selenium.webdriver.common.by import By

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
    """A schedule as the page has it."""
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
        moving, gradients = ([draw.uniform(0, 9) for _ in range(draw.choice((1, parts)))] for _ in range(2))
        bucket, latency, rate = draw.choice((0, 2.5)), draw.uniform(0, 2), draw.choice((0, 0.7))
        reduce = {"bytes": gradients, "bucket": bucket, "latency": latency, "rate": rate}
        costs = dict(zip(("forward", "backwardInput", "backwardWeight"), lists), comm=comm, overlap=overlap)
        costs |= {"moving": moving, "reduce": reduce}
        got = browser.execute_script(
            "const r = schedulePage.simulate(arguments[0], arguments[1]);"
            "return [r.makespan, r.stages.map((s) => [s.busy, s.start, s.end, s.peak])]",
            plan_of(schedule),
            costs,
        )
        it = dsc.simulate_pipeline(
            schedule, forward=lists[0], backward_input=lists[1], backward_weight=lists[2], comm=comm, overlap=overlap,
            message_bytes=moving, bytes_per_time=1, gradient_bytes=gradients, bucket_bytes=bucket,
            reduce_latency=latency, reduce_bytes_per_time=rate,
        )  # fmt: skip
        assert got[0] == pytest.approx(it.makespan)
        for stage, (busy, start, end, peak) in enumerate(got[1]):
            assert busy == pytest.approx(it.busy[stage]) and peak == it.peak_activations[stage]
            assert end - start - busy == pytest.approx(it.own_window_idle[stage], abs=1e-9)


def test_side_by_side(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b", "--kind", "zb_v")
    titles = [it.text for it in browser.find_elements(By.TAG_NAME, "h2")]
    assert titles[0].startswith("1f1b: 4 stages, 8") and titles[1].startswith("zb_v: 4 stages x 2 chunks")
    numbers = [it.text for it in browser.find_elements(By.CLASS_NAME, "numbers")]
    assert numbers[0].startswith("makespan 33 ") and numbers[1].startswith("makespan 25.5 (100.0 %")
    assert "whole stage" in browser.find_element(By.ID, "scale").text
    assert browser.find_element(By.CSS_SELECTOR, "section.best h2").text.startswith("zb_v")


def test_sliders_price_again(browser, tmp_path):
    open_page(browser, tmp_path, "--kind", "1f1b", "--stages", "2", "--micro-batches", "4")
    assert browser.find_element(By.CLASS_NAME, "numbers").text.startswith("makespan 15 ")
    browser.execute_script(
        "const s = document.getElementById('comm'); s.value = 1; s.dispatchEvent(new Event('input'))"
    )
    assert browser.find_element(By.CLASS_NAME, "numbers").text.startswith("makespan 19 ")


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


COLUMNS = "forward_us,backward_input_us,backward_weight_us,weight_bytes,activation_bytes,output_bytes"


def test_the_best_plans_side_by_side(browser, tmp_path):
    """Each with its own costs, messages and reductions, and the times that the table has."""
    draw, layers = random.Random(3), tmp_path / "layers.csv"
    layers.write_text("\n".join([COLUMNS, *(",".join(str(draw.randint(1, 40)) for _ in range(6)) for _ in range(8))]))
    asked = ["--layers", str(layers), "--devices", "8", "--batch", "16", "--latency-us", "3", "--bandwidth", "8MB/s"]
    asked += ["--reduce-latency-us", "5", "--reduce-bandwidth", "4MB/s", "--bucket", "16", "--overhead-us", "1", "--stages", "2,4,8"]  # so that there are messages
    open_page(browser, tmp_path, *asked, command="plan")
    table = subprocess.run([tool.DSCCTL, "plan", *asked, "--json"], capture_output=True, text=True, timeout=60)
    rows = json.loads(table.stdout)["rows"][:5]
    makespans = browser.execute_script("return schedulePage.views.map((view) => view.result.makespan)")
    assert makespans == pytest.approx([row["step_us"] for row in rows])
    assert len({row["replicas"] for row in rows}) > 1 or any(row["network_us"] > 0 for row in rows)
    titles = [it.text for it in browser.find_elements(By.TAG_NAME, "h2")]
    assert [title.split(" on ")[0] for title in titles] == [row["schedule"] for row in rows]
    browser.execute_script("const s = document.getElementById('comm'); s.value = 0; s.dispatchEvent(new Event('input'))")
    without = browser.execute_script("return schedulePage.views.map((view) => view.result.makespan)")
    assert all(less <= more for less, more in zip(without, makespans)) and without != makespans
