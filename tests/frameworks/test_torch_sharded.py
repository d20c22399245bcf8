"""libdsc.torch.ShardedDataParallel on ranks of one host and of two, beside DistributedDataParallel and PyTorch's FSDP2."""

import pytest

pytest.importorskip("torch")

import torch_ranks as ranks
import torch_sharded_cases as cases
from torch_sharded_modules import MODELS

CLOSE = 2e-5
OTHER_SUMS = ("each_micro_batch_reduced", "never_zeroed")  # sums of averages, where DDP averages sums


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_models_train_the_bits_of_ddp(name, optimizer, stage):
    for worst, names in ranks.run(2, cases.beside_ddp, name, "plain", optimizer, stage):
        assert names == [] and worst == 0


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("way", cases.WAYS)
def test_ways_to_train_give_the_bits_of_ddp(way, stage):
    for worst, names in ranks.run(2, cases.beside_ddp, "gpt", way, "momentum", stage):
        assert worst < CLOSE if way in OTHER_SUMS else names == []
