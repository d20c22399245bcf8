"""libdsc for PyTorch. Importing it imports torch; `import libdsc` does not."""

from __future__ import annotations

from libdsc.torch._ddp import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
