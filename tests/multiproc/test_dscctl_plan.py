"""dscctl plan finds the best schedule with the simulator. Compared with known answers and with the Python package."""

import itertools
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import launch
import pytest
from test_dscctl import dscctl, own_environment

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from repetitions import repetitions  # noqa: E402

if not os.environ.get("SANITIZED"):  # a sanitized library needs a sanitized interpreter
    import libdsc as dsc

HEADER = "name,forward_us,backward_input_us,backward_weight_us,weight_bytes,activation_bytes,output_bytes\n"
KINDS = {"1f1b": 1, "gpipe": 1, "interleaved_1f1b": 0, "looped_bfs": 0, "zb_h1": 1, "zb_h2": 1, "zb_v": 2, "v_half": 2, "v_min": 2, "dualpipe_v": 2}
NAMED = ",".join(KINDS)


NETWORK = {"--network", "--bandwidth", "--reduce-bandwidth"}


def plan(layers, *args):
    """Runs dscctl plan. The default network takes no time."""
    free = () if NETWORK & set(args) else ("--network", "free")
    return dscctl("plan", "--layers", str(layers), *args, *free)


def answer_of(layers, *args, code=0):
    result = plan(layers, *args, "--json")
    assert (result.returncode, result.stderr) == (code, "")
    return json.loads(result.stdout)


@pytest.fixture
def two(tmp_path):
    """Two layers whose passes all take 1 us, with 10 bytes of weights and 3 bytes of activations."""
    return written(tmp_path, [{"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1, "weight_bytes": 10, "activation_bytes": 3, "output_bytes": 5}] * 2)


def written(tmp_path, layers):
    file = tmp_path / "layers.csv"
    rows = (",".join(str(value) for value in layer.values()) for layer in layers)
    file.write_text(",".join(layers[0]) + "\n" + "\n".join(rows) + "\n")
    return file


def test_two_layers_by_hand(two):
    """One stage: two samples on each replica, 6 us each.

    Two stages: 4 x 3 us and the fill, which is 3 us for 1F1B and 1 us for zb_h1.
    """
    answer = answer_of(two, "--devices", "2", "--batch", "4", "--top", "100", "--kind", "1f1b,zb_h1")
    times = {(row["schedule"], row["stages"], row["micro_batches"]): row["step_us"] for row in answer["rows"]}
    # with 1 micro-batch it takes the same time and more memory
    assert times[("1f1b", 1, 2)] == 12 and ("1f1b", 1, 1) not in times
    assert times[("1f1b", 2, 4)] == 15 and times[("zb_h1", 2, 4)] == 13
    assert answer["rows"][0]["stages"] == 1 and answer["rows"][0]["micro_batches"] == 2
    assert answer["rows"][0]["peak_bytes"] == 2 * (4 * 10 + 3)
    assert answer["candidates"]["all"] == 2 + 2 * 3 == answer["candidates"]["simulated"]


def test_memory_flips_the_choice(two):
    asked = ("--devices", "2", "--batch", "4", "--kind", "1f1b,zb_h1")
    answer = answer_of(two, *asked, "--memory", "60")
    best = answer["rows"][0]
    assert (best["schedule"], best["stages"], best["micro_batches"], best["step_us"]) == ("zb_h1", 2, 4, 13)
    assert best["peak_bytes"] == 4 * 10 + 2 * 3
    faster = answer["faster_with_more_memory"]
    assert faster["step_us"] == 12 and faster["peak_bytes"] == 86
    assert "With 86 B of memory 1f1b on 1 stage x 2 replicas" in answer["recommendation"]
    assert answer_of(two, *asked, "--memory", "86")["rows"][0]["stages"] == 1


def test_all_reduces_flip_the_choice(two):
    asked = ("--devices", "2", "--batch", "4", "--kind", "1f1b,zb_h1")
    # the all-reduce takes 20 us
    best = answer_of(two, *asked, "--network", "free", "--reduce-bandwidth", "1MB/s")["rows"][0]
    assert best["stages"] == 2
    best = answer_of(two, *asked, "--network", "free", "--reduce-bandwidth", "1GB/s")["rows"][0]
    assert best["stages"] == 1 and best["network_us"] == pytest.approx(0.02)


def test_nothing_fits(two):
    """Named schedules need memory for two activations of a stage. A searched order needs it for one."""
    asked = ("--devices", "2", "--batch", "4", "--memory")
    answer = answer_of(two, *asked, "40", code=1)
    assert answer["rows"] == [] and answer["least_bytes"] == 40 + 3
    assert answer_of(two, *asked, "40", "--kind", NAMED, code=1)["least_bytes"] == 40 + 2 * 3
    result = plan(two, *asked, "40", "--kind", NAMED)
    assert result.returncode == 1 and result.stdout.split("\n\n")[1].startswith("Nothing fits in 40 B: the smallest memory found is 46 B, for ")
    assert answer_of(two, *asked, "46", "--kind", NAMED)["rows"][0]["peak_bytes"] == 46
    assert answer_of(two, *asked, "43")["rows"][0]["peak_bytes"] == 43


def test_no_page_without_plans(two, tmp_path):
    file = tmp_path / "page.html"
    result = plan(two, "--devices", "2", "--batch", "4", "--memory", "1", "--html", str(file))
    assert result.returncode == 1 and result.stderr == f"dscctl: {file} was not written, because no candidate was found\n"
    assert not file.exists()


def test_less_memory_for_little_time(tmp_path):
    """Two samples at a time save one overhead of each of two layers, and need 200 B more."""
    layer = {"forward_us": 1, "backward_input_us": 1, "backward_weight_us": 1, "weight_bytes": 10, "activation_bytes": 100, "output_bytes": 5}
    asked = ("--devices", "2", "--batch", "4", "--kind", "1f1b", "--stages", "1", "--overhead-us")
    answer = answer_of(written(tmp_path, [layer] * 2), *asked, "0.001")
    assert [(row["step_us"], row["peak_bytes"]) for row in answer["rows"]] == [(pytest.approx(12.006), 480), (pytest.approx(12.012), 280)]
    assert "With 0.0 % more time 1f1b on 1 stage x 2 replicas, 2 micro-batches of 1 sample needs 200 B less memory.\n" in answer["recommendation"]
    # with this overhead the other plan takes more than 5 % longer
    assert "more time" not in answer_of(written(tmp_path, [layer] * 2), *asked, "0.1")["recommendation"]


def part_sums(layers, boundaries, value):
    return [sum(value(layer) for layer in layers[a:b]) for a, b in zip(boundaries, boundaries[1:])]


def priced(layers, kind, stages, replicas, chunks, micro_batches, samples, args, cut=None):
    """Returns the same candidate from the Python package, with the shortest busiest part unless a cut is given."""
    times = [samples * (it["forward_us"] + it["backward_input_us"] + it["backward_weight_us"]) + 3 * args["overhead"] for it in layers]
    cut = cut or list(dsc.partition_layers(times, stages * chunks))
    of = lambda name: part_sums(layers, cut, lambda it: samples * it[name])  # noqa: E731
    passes = lambda name: part_sums(layers, cut, lambda it: samples * it[name] + args["overhead"])  # noqa: E731
    weights = part_sums(layers, cut, lambda it: it["weight_bytes"])
    last = [samples * layers[end - 1]["output_bytes"] for end in cut[1:]]
    return dsc.simulate_pipeline(
        kind, stages, micro_batches, chunks,
        forward=passes("forward_us"), backward_input=passes("backward_input_us"), backward_weight=passes("backward_weight_us"),
        comm=args["latency"], message_bytes=last, bytes_per_time=args["rate"], activation_bytes=of("activation_bytes"),
        static_bytes=[4 * it for it in weights], gradient_bytes=weights if replicas > 1 else 0, bucket_bytes=args["bucket"],
        reduce_latency=args["reduce_latency"], reduce_bytes_per_time=args["reduce_rate"],
    )  # fmt: skip


def test_on_one_stage_a_schedule_with_chunks_reduces_earlier(tmp_path):
    """After the last backward pass the gradients of one of 4 layers are not reduced yet. With 1f1b it is all 4."""
    file = written(tmp_path, [{"forward_us": 10, "backward_input_us": 10, "backward_weight_us": 10, "weight_bytes": 40, "activation_bytes": 0, "output_bytes": 0}] * 4)
    asked = ("--devices", "2", "--batch", "4", "--stages", "1", "--micro-batches", "2", "--reduce-bandwidth", "10MB/s")
    best = answer_of(file, *asked, "--kind", NAMED)["rows"][0]
    assert (best["chunks"], best["step_us"]) == (4, 240 + 4)
    assert answer_of(file, *asked, "--kind", "1f1b")["rows"][0]["step_us"] > 244


def divisors(number):
    return [one for one in range(1, number + 1) if number % one == 0]


def brute_force(layers, devices, batch, args):
    """Returns every candidate and its cost."""
    found = {}
    for stages in divisors(devices):
        replicas = devices // stages
        if stages > len(layers) or batch % replicas:
            continue
        for micro_batches in divisors(batch // replicas):
            reduces = replicas > 1 and (args["reduce_latency"] or args["reduce_rate"])
            for kind, own in KINDS.items() if stages > 1 or reduces else [("1f1b", 1)]:
                most = len(layers) // stages
                for chunks in [own] if own else [2**i for i in range(1, 8)]:
                    if chunks > most:
                        continue
                    try:
                        shape = (stages, replicas, chunks, micro_batches, batch // replicas // micro_batches)
                        found[(kind, *shape)] = priced(layers, kind, *shape, args)
                    except dsc.InvalidArgError:
                        pass  # this schedule does not exist for these numbers
    return found


def key_of(row):
    return tuple(row[name] for name in ("schedule", "stages", "replicas", "chunks", "micro_batches", "samples"))


def random_case(seed):
    pick = random.Random(seed)
    columns = HEADER.strip().split(",")[1:]
    layers = [{name: pick.randint(1, 40) for name in columns} for _ in range(pick.randint(3, 9))]
    args = {"overhead": pick.choice([0, 2]), "latency": pick.choice([0, 3]), "rate": pick.choice([0, 8]), "bucket": pick.choice([0, 16]), "reduce_latency": pick.choice([0, 5]), "reduce_rate": pick.choice([0, 4])}
    return layers, pick.choice([4, 6, 8]), 24, args


def options_of(devices, batch, args):
    given = ["--devices", str(devices), "--batch", str(batch), "--overhead-us", str(args["overhead"]), "--latency-us", str(args["latency"])]
    given += ["--bandwidth", f"{args['rate']}MB/s", "--bucket", f"{args['bucket']}", "--reduce-latency-us", str(args["reduce_latency"])]
    return [*given, "--reduce-bandwidth", f"{args['reduce_rate']}MB/s", "--kind", NAMED]


@pytest.mark.skipif("SANITIZED" in os.environ, reason="libdsc cannot be imported")
@pytest.mark.parametrize("seed", range(repetitions(6, least=2)))
def test_brute_force_finds_the_same(tmp_path, seed):
    layers, devices, batch, args = random_case(seed)
    expected = brute_force(layers, devices, batch, args)
    file = written(tmp_path, layers)
    answer = answer_of(file, *options_of(devices, batch, args), "--top", "10000")
    shown = {key for row in answer["rows"] for key in (key_of(row), *((kind, *key_of(row)[1:]) for kind in row["as_good"]))}
    assert shown <= set(expected) and len(answer["rows"]) + answer["candidates"]["repeated"] == len(expected)
    for key in set(expected) - shown:  # a row with the same schedule and stages takes the same time
        alike = [row["step_us"] for row in answer["rows"] if (row["schedule"], row["stages"]) == key[:2]]
        assert min(alike) <= expected[key].makespan * (1 + 1e-8)
    for row in answer["rows"]:
        known = priced(layers, *key_of(row), args, row["boundaries"])
        assert row["step_us"] == pytest.approx(known.makespan)
        assert row["step_us"] <= expected[key_of(row)].makespan * (1 + 1e-8)
        assert row["peak_bytes"] == pytest.approx(max(known.peak_bytes))
        assert row["idle"] == pytest.approx(sum(known.idle) / row["stages"] / row["step_us"])
        assert row["busy_us"] + row["waiting_us"] + row["network_us"] == pytest.approx(row["step_us"])
    times = [row["step_us"] for row in answer["rows"]]
    assert times == pytest.approx(sorted(times))
    short = answer_of(file, *options_of(devices, batch, args), "--top", "3")
    assert [row["step_us"] for row in short["rows"]] == times[: len(short["rows"])] and 1 <= len(short["rows"]) <= 3
    counts = short["candidates"]
    assert counts["simulated"] + counts["cannot_be_shown"] == counts["all"] == len(expected)


def every_cut(layers, parts):
    for inner in itertools.combinations(range(1, len(layers)), parts - 1):
        yield [0, *inner, len(layers)]


@pytest.mark.skipif("SANITIZED" in os.environ, reason="libdsc cannot be imported")
@pytest.mark.parametrize("seed", range(repetitions(6, least=2)))
def test_no_cut_is_better(tmp_path, seed):
    """Tries all cuts of a few layers. None is faster in the same memory, and none needs less memory."""
    layers, _, _, args = random_case(seed)
    shape = ("1f1b", 3, 1, 1, 12, 2)
    every = [priced(layers, *shape, args, cut) for cut in every_cut(layers, 3)]
    asked = (*options_of(3, 24, args)[:-1], "1f1b", "--stages", "3", "--micro-batches", "12")
    file = written(tmp_path, layers)
    assert answer_of(file, *asked)["rows"][0]["step_us"] == pytest.approx(min(it.makespan for it in every))
    peaks = sorted({max(it.peak_bytes) for it in every})
    for memory in (peaks[0], peaks[len(peaks) // 2]):
        best = min(it.makespan for it in every if max(it.peak_bytes) <= memory)
        assert answer_of(file, *asked, "--memory", str(memory))["rows"][0]["step_us"] == pytest.approx(best)
    if peaks[0] > 1:
        assert answer_of(file, *asked, "--memory", str(peaks[0] - 1), code=1)["least_bytes"] == peaks[0]


@pytest.fixture
def transformer(tmp_path):
    """A model of an embedding, twelve equal blocks, and a head."""
    names = HEADER.strip().split(",")[1:]
    lines = [(100, 0, 200, 200e6, 8e6, 8e6), *[(1000, 1100, 900, 100e6, 100e6, 8e6)] * 12, (800, 900, 700, 200e6, 50e6, 4)]
    return written(tmp_path, [dict(zip(names, line)) for line in lines])


ON_EIGHT = ("--devices", "8", "--batch", "64", "--stages", "8", "--micro-batches", "64", "--latency-us", "1.664", "--bandwidth", "6.9GB/s")


def test_layers_are_cut_for_the_whole_step(transformer):
    """A cut that only minimizes the busiest part may leave heavy parts elsewhere. It took 538 ms and needed 2.2 GB."""
    asked = (*ON_EIGHT, "--kind", "1f1b")
    assert answer_of(transformer, *asked)["rows"][0]["step_us"] < 490e3
    # the first stages need more memory, so they get fewer layers
    best = answer_of(transformer, *asked, "--memory", "1.8GB")["rows"][0]
    assert best["peak_bytes"] <= 1.8e9
    result = plan(transformer, *asked, "--memory", "1GB")
    assert result.returncode == 1 and result.stdout.split("\n\n")[1].startswith("Nothing fits in 1 GB: the smallest memory found is 1.80 GB, for 1f1b")


def test_an_order_that_is_looked_for_gets_a_cut_that_has_room(transformer):
    best = answer_of(transformer, *ON_EIGHT, "--memory", "1.4GB")["rows"][0]
    assert best["schedule"] == "auto" and best["step_us"] < 1e6 and best["peak_bytes"] <= 1.4e9
    assert best["boundaries"] == [0, 1, 3, 5, 7, 9, 11, 13, 14]
    # auto needs that much, too
    assert answer_of(transformer, *ON_EIGHT, "--memory", "900MB", code=1)["least_bytes"] == 1e9


def test_the_table_says_what_json_says(tmp_path):
    layers, devices, batch, args = random_case(1)
    file, asked = written(tmp_path, layers), options_of(devices, batch, args)
    answer, result = answer_of(file, *asked), plan(file, *asked)
    assert result.returncode == 0
    head, *lines = result.stdout.split("\n\n")[1].splitlines()
    assert head.split() == "schedule stages x replicas chunks micro-batches x samples step samples/s idle peak memory slower".split()
    assert len(lines) == len(answer["rows"]) == 10
    assert [line[:3] for line in lines] == ["-> ", *["   "] * 9]  # the arrow marks the recommendation
    for line, row in zip([line[3:] for line in lines], answer["rows"]):
        kind, stages, _, replicas, chunks, micro_batches, _, samples, *_ = line.split()
        kind, *others = kind.split(",")
        assert others == row["as_good"]
        assert (kind, *map(int, (stages, replicas, chunks, micro_batches, samples))) == key_of(row)
        assert f"{100 * row['idle']:.1f} %" in line
    assert answer["recommendation"] in result.stdout and answer["remarks"] in result.stdout


@pytest.mark.parametrize("seed", range(repetitions(3, least=1)))
def test_the_command_prices_the_same(tmp_path, seed):
    layers, devices, batch, args = random_case(seed)
    for row in answer_of(written(tmp_path, layers), *options_of(devices, batch, args)[:-1], "auto,1f1b,zb_v")["rows"]:
        drawn = dscctl(*shlex.split(row["command"])[1:])
        assert drawn.returncode == 0, drawn.stderr
        makespan = re.search(r"makespan ([\d.e+]+)", drawn.stdout)[1]
        assert float(makespan) == pytest.approx(row["step_us"], rel=1e-4)


def test_an_order_that_is_looked_for(two):
    """No named schedule needs so little memory in the same time."""
    answer = answer_of(two, "--devices", "2", "--batch", "3", "--stages", "2", "--micro-batches", "3", "--kind", "auto")
    assert [row["schedule"] for row in answer["rows"]] == ["auto"] and answer["candidates"]["searched"] == 1
    assert answer["rows"][0]["step_us"] >= answer["rows"][0]["bound_us"]


def test_columns_in_any_order_json_and_stdin(two, tmp_path):
    expected = answer_of(two, "--devices", "2", "--batch", "4")
    other = tmp_path / "other.csv"
    other.write_text("output_bytes,backward_us,weight_bytes,forward_us,activation_bytes\r\n" + "5,2,10B,1,3\r\n" * 2 + "\r\n")
    answer = answer_of(other, "--devices", "2", "--batch", "4")
    assert answer["rows"] == expected["rows"] and "each half of a backward pass is assumed to take half" in answer["remarks"]
    one = {"name": "a, b", "forward_us": 1, "backward_us": 2, "weight_bytes": "10B", "activation_bytes": 3, "output_bytes": 5}
    command = [launch.DSCCTL, "plan", "--layers", "-", "--devices", "2", "--batch", "4", "--network", "free", "--json"]
    result = subprocess.run(command, input=json.dumps([one] * 2), env=own_environment(), capture_output=True, text=True, timeout=30)
    assert json.loads(result.stdout)["rows"] == expected["rows"] and json.loads(result.stdout)["layers"] == ["a, b"] * 2


ON_FOUR = ("--devices", "4", "--batch", "4", "--kind", "1f1b")


@pytest.mark.parametrize(
    "args, unknown",
    [
        ([], "messages between stages and all-reduces of gradients over replicas"),
        (["--latency-us", "3", "--reduce-latency-us", "4"], "messages between stages and all-reduces of gradients over replicas"),
        (["--reduce-bandwidth", "1GB/s"], "messages between stages"),
        (["--reduce-bandwidth", "1GB/s", "--stages", "1"], None),
        (["--stages", "1"], "all-reduces of gradients over replicas"),
        (["--bandwidth", "1GB/s"], None),
        (["--network", "free"], None),
    ],
)
def test_no_network_is_taken_as_free(tmp_path, args, unknown):
    file = written(tmp_path, [{"forward_us": 1, "backward_us": 2, "weight_bytes": 10, "activation_bytes": 3, "output_bytes": 5}] * 4)
    result = dscctl("plan", "--layers", str(file), *ON_FOUR, *args)
    assert result.returncode == (2 if unknown else 0) and (result.stdout == "") == bool(unknown)
    if unknown:
        assert result.stderr.startswith(f"dscctl: how long {unknown} take is not known")
        assert all(f"\n  {option} " in result.stderr for option in ("--bandwidth", "--reduce-bandwidth", "--network"))


def test_one_device_needs_no_network(two):
    result = dscctl("plan", "--layers", str(two), "--devices", "1", "--batch", "4")
    assert result.returncode == 0 and result.stdout.startswith("Assumed: one device, so there is no network; 4 bytes of weights")


def test_all_reduces_are_rings_of_links(two):
    """4 replicas take 6 rounds of 3 us, and 1.5 times 20 bytes at 10 MB/s."""
    asked = ("--devices", "4", "--batch", "4", "--stages", "1", "--kind", "1f1b", "--bandwidth", "10MB/s", "--latency-us", "3")
    assert answer_of(two, *asked)["rows"][0]["step_us"] == 6 + 6 * 3 + 1.5 * 20 / 10
    assert answer_of(two, *asked, "--reduce-latency-us", "1")["rows"][0]["step_us"] == 6 + 1 + 1.5 * 20 / 10
    assert answer_of(two, *asked, "--reduce-bandwidth", "20MB/s")["rows"][0]["step_us"] == 6 + 6 * 3 + 20 / 20


def test_the_first_line_says_what_was_assumed(two):
    link = ("--devices", "2", "--batch", "4", "--latency-us", "3", "--bandwidth", "25GB/s")
    first = plan(two, *link).stdout.splitlines()[0]
    assert first == answer_of(two, *link)["assumed"] == (
        "Assumed: a message between stages takes 3 us + bytes / 25 GB/s (--latency-us, --bandwidth); an all-reduce over replicas takes "
        "2 (r - 1) x 3 us + 2 (r - 1) / r x bytes / 25 GB/s with r replicas (a ring of such messages); gradients are as large as weights, "
        "reduced once per part; 4 bytes of weights, gradients and optimizer per byte of weights (--state)."
    )
    first = plan(two, *link, "--reduce-bandwidth", "10GB/s", "--reduce-latency-us", "50", "--bucket", "1KB", "--state", "8").stdout.splitlines()[0]
    assert "an all-reduce over replicas takes 50 us + bytes / 10 GB/s (--reduce-latency-us, --reduce-bandwidth); " in first
    assert "reduced in buckets of 1 KB; 8 bytes of weights" in first
    first = plan(two, "--devices", "2", "--batch", "4", "--bandwidth", "25GB/s", "--reduce-bandwidth", "10GB/s").stdout.splitlines()[0]
    assert "takes 0 us + bytes / 25 GB/s (--bandwidth); an all-reduce over replicas takes 0 us + bytes / 10 GB/s (--reduce-bandwidth)" in first
    first = plan(two, *link, "--reduce-bandwidth", "10GB/s").stdout.splitlines()[0]
    assert "takes 2 (r - 1) x 3 us + bytes / 10 GB/s with r replicas (a ring of such messages; --reduce-bandwidth)" in first
    first = plan(two, "--devices", "2", "--batch", "4").stdout.splitlines()[0]
    assert "an all-reduce over replicas takes no time (--network free)" in first


def test_a_network_is_measured_if_that_is_wanted(two):
    answer = answer_of(two, "--devices", "2", "--batch", "4", "--network", "measure")
    assert "a message between stages takes " in answer["assumed"] and "(measured now between processes on this host with 2 ranks)" in answer["assumed"]
    assert "no time" not in answer["assumed"] and "Measured: messages with 2 ranks (largest error of the fit " in answer["remarks"]


def test_one_row_for_each_answer(tmp_path):
    """On one stage 8 micro-batches of 1 sample take as long as 1 of 8 samples.

    With one micro-batch gpipe equals 1f1b.
    """
    file = written(tmp_path, [{"forward_us": 0.1, "backward_us": 0.2, "weight_bytes": 10, "activation_bytes": 3, "output_bytes": 5}] * 4)
    asked = ("--devices", "8", "--batch", "64", "--bandwidth", "1GB/s", "--kind", "1f1b,gpipe", "--stages", "1,2", "--top", "99")
    answer = answer_of(file, *asked)
    lines = plan(file, *asked).stdout.split("\n\n")[1].splitlines()[1:]
    shown = [(line[3:].split()[0], line.split(" x ")[0].split()[-1], *line.split()[-8:-1]) for line in lines]
    assert len(set(shown)) == len(shown) == len(answer["rows"])
    assert len([row for row in answer["rows"] if row["stages"] == 1]) < 4 < answer["candidates"]["repeated"]
    assert "Not shown: " in answer["remarks"] and "(within 0.05 %)" in answer["remarks"]
    one = answer_of(file, *asked[:-4], "--stages", "2", "--micro-batches", "1")["rows"]
    assert [(row["schedule"], row["as_good"]) for row in one] == [("1f1b", ["gpipe"])]


def test_no_digits_of_rounding_errors(tmp_path):
    """0.1 + 0.2 us and 3 x 0.7 samples must print without rounding errors, in text and in JSON."""
    file = written(tmp_path, [{"forward_us": 0.1, "backward_us": 0.7, "weight_bytes": 123456789012, "activation_bytes": 3, "output_bytes": 5}] * 6)
    asked = ("--devices", "4", "--batch", "12", "--bandwidth", "1.1GB/s", "--latency-us", "0.3")
    result = plan(file, *asked)
    assert result.returncode == 0 and not re.findall(r"\d{10,}|\d\.\d{6,}", result.stdout)
    assert not re.findall(r"\d\.\d{12,}", plan(file, *asked, "--json").stdout)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network file as real ranks measured it."""
    file = tmp_path_factory.mktemp("network") / "network.json"
    result = dscctl("bench", "--network", str(file), "--ranks", "2,4", "--sizes", "4,64KB,1MiB", "--budget-ms", "5")
    assert result.returncode == 0 and result.stderr == f"wrote {file}\n"
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [["send_recv", "2"], ["send_recv", "4"], ["all_reduce", "2"], ["all_reduce", "4"]]
    return file


def test_a_measured_network(network):
    written = json.loads(network.read_text())
    assert (written["format"], written["version"]) == ("libdsc network", 1)
    for line in written["messages"] + written["all_reduces"]:
        assert [it["bytes"] for it in line["measured"]] == [4, 64000, 1 << 20] and line["latency_us"] >= 0
        per_byte = 1e6 / line["bytes_per_s"] if line["bytes_per_s"] is not None else 0
        errors = [abs((line["latency_us"] + per_byte * it["bytes"]) / it["us"] - 1) for it in line["measured"]]
        assert line["largest_relative_error"] == pytest.approx(max(errors))


def test_how_far_from_a_line_a_network_is(two, tmp_path):
    file = tmp_path / "network.json"
    line = {"ranks": 2, "latency_us": 1, "bytes_per_s": 1e6, "largest_relative_error": 0.45}
    file.write_text(json.dumps({"format": "libdsc network", "version": 1, "messages": [line], "all_reduces": [line, dict(line, ranks=4)]}))
    remarks = answer_of(two, "--devices", "2", "--batch", "4", "--network", str(file))["remarks"]
    error = "(largest error of the fit 45 %)"
    assert f"Measured: messages with 2 ranks {error}, all-reduces with 2 ranks {error}, 4 ranks {error}.\n" in remarks


def test_plans_with_a_measured_network(network, two, tmp_path):
    made_up = json.loads(network.read_text())
    for line, latency in zip(made_up["messages"] + made_up["all_reduces"], [1, 2, 10, 20]):
        line.update(latency_us=latency, bytes_per_s=1e6)
    network = tmp_path / "made_up.json"
    network.write_text(json.dumps(made_up))
    asked = ("--devices", "2", "--batch", "4", "--kind", "1f1b", "--top", "99")
    expected = answer_of(two, *asked, "--latency-us", "1", "--bandwidth", "1MB/s", "--reduce-latency-us", "10", "--reduce-bandwidth", "1MB/s")
    assert answer_of(two, *asked, "--network", str(network))["rows"] == expected["rows"]
    expected = answer_of(two, *asked, "--latency-us", "5", "--bandwidth", "1MB/s", "--reduce-latency-us", "3", "--reduce-bandwidth", "1MB/s")
    assert answer_of(two, *asked, "--network", str(network), "--latency-us", "5", "--reduce-latency-us", "3")["rows"] == expected["rows"]
    costs = ("schedule", "-s", "2", "-m", "3", "--message-bytes", "4", "--gradient-bytes", "7")
    drawn = dscctl(*costs, "--network", str(network))
    assert drawn.stdout == dscctl(*costs, "--latency", "2", "--bandwidth", "1", "--reduce-latency", "20", "--reduce-bandwidth", "1").stdout


LINE = '[{"ranks": 2, "latency_us": 1, "bytes_per_s": null}]'


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "line 1, column 1: "),
        ("[]", "the file is [], expected an object"),
        ('{"format": "other"}', 'format is "other", expected "libdsc network", the format that `dscctl bench --network` writes'),
        ('{"format": "libdsc network"}', 'the file has no "version"'),
        ('{"format": "libdsc network", "version": 2}', "version is 2, expected 1"),
        ('{"format": "libdsc network", "version": 1, "messages": []}', "messages is [], expected a list with at least one entry"),
        (f'{{"format": "libdsc network", "version": 1, "messages": {LINE}}}', 'the file has no "all_reduces"'),
        (f'{{"format": "libdsc network", "version": 1, "messages": {LINE.replace("2", "0")}}}', "messages[0], ranks, is 0, expected a whole number"),
        (f'{{"format": "libdsc network", "version": 1, "messages": {LINE.replace("1", "-1")}}}', "messages[0], latency_us, is -1, expected a number of 0 or more"),
        (f'{{"format": "libdsc network", "version": 1, "messages": {LINE.replace("null", "0")}}}', "messages[0], bytes_per_s, is 0, expected a number above 0, or null"),
        (f'{{"format": "libdsc network", "version": 1, "messages": {LINE.replace("latency_us", "us")}}}', 'messages[0] has no "latency_us"'),
    ],
)
def test_a_wrong_network(two, tmp_path, text, words):
    file = tmp_path / "network.json"
    file.write_text(text)
    for command in (["plan", "--layers", str(two), "--devices", "2", "--batch", "4"], ["schedule"]):
        result = dscctl(*command, "--network", str(file))
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith(f"dscctl: {file}: ") and words in result.stderr


@pytest.mark.parametrize(
    "args, code, words",
    [
        (["--ranks", "3"], 2, "--network measures messages between pairs of ranks: expected even numbers in --ranks, got 3"),
        (["--sizes", "4"], 2, "--sizes: expected two or more different sizes for --network, got 4"),
        (["--sizes", "4KiB,4096"], 2, "--sizes: expected two or more different sizes for --network, got 4KiB,4096"),
        (["--sizes", "4,1.3KB,5"], 2, "--sizes: expected multiples of 4 bytes such as 4, 16KiB or 25MiB, got '5'"),
        (["--tune"], 2, "excludes"),
    ],
)
def test_wrong_measurements_of_a_network(tmp_path, args, code, words):
    result = dscctl("bench", "--network", str(tmp_path / "network.json"), *args)
    assert result.returncode == code and words in result.stderr and result.stdout == ""


def test_a_network_file_that_cannot_be_written(tmp_path):
    file = tmp_path / "none" / "network.json"
    result = dscctl("bench", "--network", str(file))
    assert (result.returncode, result.stdout) == (2, "") and f"{file}: cannot be written" in result.stderr


def test_layers_in_a_folder(tmp_path):
    result = dscctl("plan", "--layers", str(tmp_path), "--devices", "2", "--batch", "4")
    assert result.returncode == 2 and f"{tmp_path}: is a directory, expected a file" in result.stderr


FINE = HEADER + "a,1,1,1,10,3,5\n"


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "is empty, expected layers as CSV or JSON"),
        (HEADER, "has no layers"),
        (HEADER.replace("forward_us", "foward_us", 1), "line 1, column 6: unknown column 'foward_us'; did you mean 'forward_us'?"),
        (HEADER.replace("name", "output_bytes"), "line 1, column 92: column 'output_bytes' occurs twice"),
        (HEADER.replace(",output_bytes", ""), "line 1: output_bytes is missing, expected it for every layer"),
        (HEADER.replace("name", "backward_us"), "line 1: backward_us is given together with its halves"),
        ("name,forward_us\n", "line 1: backward_us is missing, expected backward_us, or both backward_input_us"),
        (FINE + "b,1,x,1,10,3,5\n", "line 3, column 5: backward_input_us is 'x', expected microseconds such as 120 or 0.5"),
        (FINE + "b,1,-1,1,10,3,5\n", "line 3, column 5: backward_input_us is '-1'"),
        (FINE + "b,1,nan,1,10,3,5\n", "line 3, column 5: backward_input_us is 'nan'"),
        (FINE + "b,1,1,1,10XB,3,5\n", "line 3, column 9: weight_bytes is '10XB', expected bytes such as 4096 or 12.5MB"),
        (FINE + "b,1,1,1,,3,5\n", "line 3, column 9: weight_bytes is ''"),
        (FINE + "b,1,1,1,10,3\n", "line 3, column 13: 6 values, expected 7, like line 1"),
        (FINE + "b,1,1,1,10,3,5,6\n", "line 3, column 16: 8 values, expected 7, like line 1"),
        (HEADER + "\na,1,1,1,10,3,5\n", "line 2, column 1: the line is empty, expected a layer"),
        (FINE + '"b,1,1,1,10,3,5\n', "line 3, column 1: expected a closing quote"),
        ("[1]", "layer 0: expected an object"),
        ('[{"forward_us": 1, "forward_us": 2}]', "'forward_us' occurs twice in a layer"),
        ('[{"forward": 1}]', "layer 0: unknown column 'forward'"),
        ('[{"forward_us": 1, }]', "line 1, column 20: "),
        ("{}", "expected a list of layers"),
        (FINE.replace("\n", ",tied\n", 1).replace("5\n", "5,w\n"), "layer 0 (a): tied is 'w', expected a name that at least two layers have"),
        (
            HEADER.replace("\n", ",tied\n") + "a,1,1,1,10,3,5,w\nb,1,1,1,11,3,5,w\n",
            "layer 1 (b): weight_bytes is 11, expected 10 as in layer 0 (a), which has the same tied name 'w'; put weights that are not shared into a separate layer",
        ),
        ('[{"name": "a", "tied": 1}]', "layer 0 (a): tied is 1, expected a string or null"),
        ('[{"tied": 1}]', "layer 0: tied is 1, expected a string or null"),
    ],
)
def test_a_wrong_file(tmp_path, text, words):
    file = tmp_path / "layers"
    file.write_text(text)
    result = plan(file, "--devices", "1", "--batch", "1")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dscctl: {file}: ") and words in result.stderr


@pytest.mark.parametrize(
    "args, words",
    [
        (["--devices", "1.5"], "--devices: expected a whole number of 1 or more, got '1.5'"),
        (["--batch", "0"], "--batch: expected a whole number of 1 or more, got '0'"),
        (["--memory", "80"], ""),
        (["--memory", "80 apples"], "--memory: expected bytes such as 80GB"),
        (["--memory", "0"], "--memory: expected more than 0 bytes"),
        (["--bandwidth", "25GB"], "--bandwidth: expected bytes or bits per second such as 25GB/s, 400MiB/s or 100Gb/s, got '25GB'"),
        (["--devices", "100000000000"], "--devices: expected a whole number of at most 2147483647, got '100000000000'"),
        (["--overlap", "5"], "--overlap: expected a number above 0 and at most 1"),
        (["--html", ""], "--html"),
        (["--html", "-"], "--html: expected a file to write, got '-'"),
        (["--memory", "80G"], "--memory: expected bytes such as 80GB"),
        (["--latency-us", "-1"], "--latency-us: expected a number of 0 or more"),
        (["--stages", "2,x"], "--stages: expected a whole number of 1 or more, got 'x'"),
        (["--stages", "3"], "no candidate to compare: expected a number of stages that divides 2 devices, one of: 1, 2"),
        (["--devices", "17"], "1 x 17: the number of replicas does not divide the batch of 4; 17 x 1: there are only 2 layers"),
        (["--micro-batches", "5"], "no number in --micro-batches divides the 2 samples of a replica"),
        (["--chunks", "3"], "1f1b needs 1 chunk, but --chunks excludes 1"),
        (["--kind", "zbv"], "--kind: unknown schedule 'zbv'; did you mean 'zb_v'?"),
        (["--top", "0"], "--top: expected a whole number of 1 or more"),
        (["--layers", "/nowhere"], "/nowhere: cannot be opened"),
        (["--staegs", "3"], "unknown command or option '--staegs'; did you mean '--stages'?"),
    ],
)
def test_refusals(two, args, words):
    given = {"--layers": str(two), "--devices": "2", "--batch": "4", "--network": "free", **dict([args])}
    result = dscctl("plan", *(word for pair in given.items() for word in pair))
    assert result.returncode == (2 if words else 0) and words in result.stderr
    assert result.stdout == "" or not words


if __name__ == "__main__":
    launch.main(__file__)
