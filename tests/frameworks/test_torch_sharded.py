"""libdsc.torch.ShardedDataParallel on ranks of one host and of two, compared with DistributedDataParallel and PyTorch's
FSDP2."""

import os
import re
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import torch_ranks as ranks
import torch_sharded_cases as cases
import torch_sharded_edges as edges
import torch_sharded_random as random_modules
import torch_sharded_wrong as wrong
from conftest import ROOT
from torch_sharded_modules import MODELS

SEEDS = int(os.environ.get("DSC_TORCH_SHARDED_MODULES", "20"))  # the number of random comparisons
CLOSE = 2e-5
OTHER_SUMS = ("each_micro_batch_reduced", "never_zeroed")  # these ways sum averages, where DDP averages sums


def expect_same_bits(found):
    for of_rank in found:
        for stage, (worst, names) in of_rank.items():
            assert names == [] and worst == 0, (stage, worst, names)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_models_train_the_bits_of_ddp(name, optimizer):
    expect_same_bits(ranks.run(2, cases.beside_ddp, name, "plain", optimizer, [1, 2, 3]))


@pytest.mark.full
@pytest.mark.parametrize("way", cases.WAYS)
def test_ways_to_train_give_the_bits_of_ddp(way):
    found = ranks.run(2, cases.beside_ddp, "gpt", way, "momentum", [1, 3])
    if way not in OTHER_SUMS:
        return expect_same_bits(found)
    for of_rank in found:
        assert all(worst < CLOSE for worst, _ in of_rank.values()), found


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_random_modules_train_the_bits_of_ddp(first):
    for found in ranks.run(2, random_modules.compare_all, list(range(first, first + 10))):
        assert found == []


@pytest.mark.full
@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("name, stage", [("gpt", 3), ("conv", 2)])
def test_more_ranks_are_close_to_ddp(name, stage, size):
    for of_rank in ranks.run(size, cases.beside_ddp, name, "no_sync", "momentum", [stage]):
        assert of_rank[stage][0] < CLOSE


def test_two_hosts_train_the_bits_of_ddp():
    expect_same_bits(ranks.run(2, cases.beside_ddp, "gpt", "plain", "adamw", [1, 3], hosts=[0, 1]))


@pytest.mark.full
def test_hybrid_shards_are_close_to_those_of_all_ranks():
    for whole, whole_later, hybrid, hybrid_later in ranks.run(4, cases.hybrid, hosts=[0, 0, 1, 1]):
        assert hybrid == pytest.approx(whole, abs=CLOSE) and hybrid_later == pytest.approx(whole_later, abs=CLOSE)


@pytest.mark.parametrize("size, stage", [(2, 1), (2, 3), (3, 2)])
def test_gradients_are_clipped_as_a_whole(size, stage):
    found = ranks.run(size, cases.clipped, stage, size)
    for norms, worst in found:
        assert worst < CLOSE and norms == found[0][0]
        for expected, got in norms:
            assert got == pytest.approx(expected, rel=1e-5) and got > 0.5


@pytest.mark.parametrize("size, name", [(2, "gpt"), (3, "conv")])
def test_state_dicts_are_those_of_the_module_alone(size, name):
    ranks.run(size, cases.states, name)


def test_a_wrong_state_is_told_as_torch_tells_it_and_on_all_ranks():
    first, second = ranks.run(2, cases.wrong_states)
    assert second[0] == "RuntimeError" and "norm.bias" in second[1]
    assert first[0] == "InvalidArgError" and "rank 1" in first[1] and "norm.bias" in first[1]


@pytest.mark.full
@pytest.mark.parametrize("size, name, optimizer", [(2, "gpt", "adamw"), (2, "conv", "momentum"), (3, "gpt", "momentum"), (3, "conv", "adamw")])
def test_optimizer_states_are_those_of_an_unsharded_one(size, name, optimizer):
    ranks.run(size, cases.optimizer_states, name, optimizer, size)


@pytest.mark.full
@pytest.mark.parametrize("name, optimizer, dtype", [("gpt", "adamw", torch.float32), ("conv", "momentum", torch.float32), ("gpt", "momentum", torch.bfloat16)])
@pytest.mark.parametrize("before, after, stage", [(2, 3, 3), (3, 2, 1)])
def test_checkpoints_are_read_by_another_number_of_ranks(name, optimizer, dtype, before, after, stage, tmp_path):
    saved = ranks.run(before, cases.save_some, str(tmp_path), name, optimizer, dtype)
    ranks.run(after, cases.load_some, str(tmp_path), name, optimizer, dtype, stage, *saved[0])


@pytest.mark.full
def test_elementwise_optimizers_train_the_bits_of_ddp():
    assert ranks.run(2, cases.optimizers) == [[], []]


@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_holds_its_part_and_units_in_use(size):
    for whole, parts, held, late in ranks.run(size, cases.memory, size):
        slack, unit = 1.02, whole / 12
        assert whole / size / slack < parts < whole / size * slack
        assert held.param_shard_bytes <= whole / size * slack and held.grad_shard_bytes <= whole / size * slack
        assert held.peak_param_bytes <= 3 * unit * slack and held.peak_grad_bytes <= (2 + late) * unit * slack


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_is_written_to_parts_counts(stage):
    first, second = ranks.run(2, cases.writes, stage)
    assert first == second and len(set(first)) == 4


@pytest.mark.parametrize("stage", [1, 3])
def test_gradients_that_the_program_sets_count(stage):
    for sums in ranks.run(2, cases.gradients_set_by_the_program, stage):
        for got, expected in sums:
            assert got == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("stage", [1, 3])
def test_gradients_that_the_program_forgets_do_not_count(stage):
    for found in ranks.run(2, cases.gradients_that_the_program_forgets, stage):
        assert found["got"] == pytest.approx(found["expected"], rel=1e-5)


@pytest.mark.parametrize("phase", ["between", "backward"])
@pytest.mark.parametrize("size, hosts", [(2, None), (3, [0, 0, 1])])
def test_a_killed_rank_is_an_error_of_the_others(phase, size, hosts):
    victim = size - 1
    for told in ranks.run(size, wrong.killed, victim, phase, hosts=hosts, lost=(victim,))[:victim]:
        name, text, seconds = told
        assert name == "PeerDeadError" and f"rank {victim}" in text and seconds < 10, told


def test_parameters_outside_of_their_units_are_errors():
    for found in ranks.run(2, wrong.misuses):
        assert "shape" in found["outside"] or "size" in found["outside"] or "dimension" in found["outside"], found
        assert "returns memory of its parameter 0.weight" in found["returns"] and "clone()" in found["returns"]
        assert "returns a Wrapped; expected tensors" in found["opaque"] and "create_graph is True" in found["second order"]
        assert "full_parameters" in found["unit alone"] and "blocks.0" in found["unit alone"]
        assert "a gradient that does not come from an output" in found["regularized"] or "shape" in found["regularized"], found
        assert found["after that"] == "no error"


EXPECTED = {
    "no module": "module is a int; expected a torch.nn.Module",
    "sparse": "0.weight has sparse gradients; expected sparse=False",
    "meta": "is on the meta device and has no memory",
    "lazy": "is uninitialized and has no shape yet",
    "frozen": "no parameter of the module requires a gradient",
    "complex": "is of torch.complex64; expected one of torch.float16",
    "units": "units contains 3; expected subclasses of torch.nn.Module",
    "absent": "units contains LSTM, but the module has no submodule of this class",
    "list": "units selects a ModuleList, which is never called",
    "text": "units is 'Block'; expected classes",
    "number": "units is 3; expected classes",
    "instance": "units is a Gpt; expected classes",
    "answer": "units returned 1 for a .*; expected a bool",
    "stage": "stage is 4, expected 1, 2 or 3",
    "shard_size": "shard_size is 5, expected 0 or a divisor of the number of ranks",
    "group": "expected",
    "mixed_precision": "mixed_precision is a object; expected None",
    "init_sync": "init_sync is 3; expected",
    "join": "expected the same number of batches on all ranks",
    "hook": "register_comm_hook: .*expected no hook",
    "keep_vars": "keep_vars is True; expected False",
    "assign": "assign is True; expected False",
    "foreign": "group 0 of the optimizer has a parameter that the module does not have",
    "factored": r"'factor' of norm.weight has shape \(2, 3\)",
    "no optimizer": "optimizer is a int; expected a torch.optim.Optimizer",
    "folder": "/nowhere has no file module.pt",
    "copy": "cannot be pickled or copied; use its state_dict",
    "full": "full_parameters: called inside a full_parameters.. block",
    "parts": "call state_dict.. of its ShardedDataParallel",
    "clip": "clip",
    "converted": "was replaced by torch.float64 of shape .*; expected torch.float32",
    "trains": "no error",
    "gradients": "gradients are enabled in a full_parameters.. block; expected torch.no_grad",
    "backward after close": "backward: this ShardedDataParallel was closed",
    "closed": "forward: this ShardedDataParallel was closed",
}


def test_wrong_inputs_are_refused_before_anything_happens():
    for found in ranks.run(2, wrong.refusals):
        assert found.keys() == EXPECTED.keys()
        for name, pattern in EXPECTED.items():
            assert re.search(pattern, found[name]), (name, found[name])


def test_passes_that_end_by_an_exception():
    for found in ranks.run(2, wrong.interrupted):
        assert "size" in found["forward"] and found["then"] == "no error" and "ZeroDivisionError" in found["backward"]
        assert "an earlier backward pass ended with an exception" in found["after"], found
        assert "an earlier backward pass ended with an exception" in found["for ever"], found


def test_the_last_reference_ends_it():
    for dimensions in ranks.run(2, wrong.dropped):
        assert set(dimensions) == {1}


@pytest.mark.full
@pytest.mark.parametrize("which", ["model", "blocks"])
def test_compiled_modules(which):
    for expected, got in ranks.run(2, cases.compiled, which):
        assert got == pytest.approx(expected, abs=CLOSE) and got[0] != got[-1]


def test_losses_are_those_of_fsdp2():
    for theirs, ours in ranks.run(2, cases.beside_fsdp):
        assert ours == pytest.approx(theirs, abs=CLOSE) and ours[0] > ours[-1]


@pytest.mark.parametrize("size, stage", [(2, 1), (2, 3), (3, 3)])
def test_ways_to_call_give_the_mean_of_the_ranks(size, stage):
    for worst in ranks.run(size, cases.calls_of, size, stage):
        assert max(worst.values()) < 1e-4, worst


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("stage", [1, 3])
def test_losses_that_modules_keep(stage, alone):
    assert max(ranks.run(2, cases.second_losses, 2, stage, alone)) < 1e-6


def test_small_things():
    first, second = ranks.run(2, cases.small_things)
    assert first == second


@pytest.mark.parametrize("hosts", [None, [0, 1]], ids=["one host", "two hosts"])
@pytest.mark.parametrize("body", [edges.second_losses, edges.frozen_weights, edges.interrupted, edges.habits], ids=lambda body: body.__name__)
def test_what_programs_do(body, hosts):
    assert ranks.run(2, body, hosts=hosts) == [True, True]


def test_what_would_be_lost_is_an_error():
    assert [edges.unexpected(found) for found in ranks.run(2, edges.errors)] == [{}, {}]


def python_of(document):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / document).read_text(), re.MULTILINE | re.DOTALL)


def test_the_lines_of_the_page_run(tmp_path):
    blocks = python_of("torch_sharded.md")
    assert len(blocks) >= 2
    ranks.run(2, cases.documented, blocks, str(tmp_path), backend=None)


@pytest.mark.parametrize("stage", [pytest.param(1, marks=pytest.mark.full), 3])
def test_the_example_trains(stage):
    dscrun = os.environ.get("DSCRUN") or shutil.which("dscrun")
    if not dscrun:
        pytest.skip("there is no dscrun, and DSCRUN does not say where it is")
    program = [sys.executable, str(ROOT / "examples/python/train_torch_sharded.py"), str(stage)]
    command = [dscrun, "-n", "2", "--timeout", "100", "--", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "wanted: reached" in done.stdout, done.stdout + done.stderr
    held, whole = map(int, re.search(r"rank 1: holds (\d+) of (\d+)", done.stdout).groups())
    assert 0.4 * whole < held < 0.6 * whole
