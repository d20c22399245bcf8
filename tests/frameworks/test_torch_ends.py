"""A program that has trained over "dsc" ends as any other: no thread of libdsc is caught in torch by the interpreter's end."""

import os
import subprocess
import sys

ROUNDS = 4  # it is a race

TRAIN = """
import sys, torch, torch.distributed as dist, libdsc.torch
torch.set_num_threads(1)
dist.init_process_group("dsc", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(60)])
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=1e-5)  # many futures, the last at the very end
model(torch.ones(2, 4)).sum().backward()
if sys.argv[3] == "destroy":
    dist.destroy_process_group()
"""


def test_torch_programs_end(tmp_path):
    for number in range(ROUNDS):
        end = ("destroy", "leave")[number % 2]
        commands = [[sys.executable, "-c", TRAIN, str(tmp_path / f"store{number}"), str(rank), end] for rank in range(2)]
        ranks = [subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True) for command in commands]
        texts = [rank.communicate(timeout=100)[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], texts
