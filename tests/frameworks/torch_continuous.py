"""Tests in torch's MultiProcContinuousTest, a harness that keeps one process group for all its tests."""

import unittest

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcContinuousTest

import libdsc.torch  # noqa: F401


class Continuous(MultiProcContinuousTest):
    world_size = 3

    @classmethod
    def backend_str(cls):
        return "dsc"

    @classmethod
    def device_type(cls):
        return "cpu"

    def test_all_reduce(self):
        x = torch.full((5,), self.rank + 1.0)
        dist.all_reduce(x)
        self.assertEqual(x, torch.full((5,), 6.0))

    def test_groups(self):
        pair = dist.new_group([0, 2])
        if self.rank != 1:
            x = torch.tensor([self.rank])
            dist.broadcast(x, src=2, group=pair)
            self.assertEqual(x.item(), 2)

    def test_messages(self):
        x, y = torch.tensor([self.rank]), torch.tensor([-1])
        after, before = (self.rank + 1) % 3, (self.rank - 1) % 3
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)])
        for work in works:
            work.wait()
        self.assertEqual(y.item(), before)

    def test_objects(self):
        found = [None] * 3
        dist.all_gather_object(found, {"rank": self.rank})
        self.assertEqual(found, [{"rank": 0}, {"rank": 1}, {"rank": 2}])


if __name__ == "__main__":
    unittest.main()
