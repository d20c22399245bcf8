"""libdsc in torch.distributed: the backend "dsc".

    torch.distributed.init_process_group("dsc")

With torch 2.14 or newer and an installed libdsc no import is needed. All of torch's collectives, messages, groups,
FSDP2, DTensor, pipelining and checkpoints then use libdsc. Failures raise torch.distributed.DistBackendError.
"""

import os as _os

from libdsc.torch._backend import Backend, Life as _Life, ProcessGroup, communicator, register, replace_gloo
from libdsc.torch._compiler import keep_out as _keep_out
from libdsc.torch._ddp.module import DistributedDataParallel
from libdsc.torch._errors import Error
from libdsc.torch._operations import Operations as _Operations
from libdsc.torch._sharded.module import ShardedDataParallel
from libdsc.torch import functional, layers

__all__ = [
    "Backend",
    "DistributedDataParallel",
    "Error",
    "ProcessGroup",
    "ShardedDataParallel",
    "communicator",
    "functional",
    "layers",
    "register",
    "replace_gloo",
]

register()
if _os.environ.get("DSC_TORCH_REPLACE_GLOO") == "1":
    replace_gloo()
_keep_out(_Operations, _Life, Backend, ProcessGroup)
