"""libdsc in torch.distributed: the backend "dsc".

    torch.distributed.init_process_group("dsc")

With torch 2.14 or newer an installed libdsc needs no import for that. All collectives, messages, groups, FSDP2, DTensor,
pipelining and checkpoints of torch go over it; failures arrive as torch.distributed.DistBackendError.
"""

from libdsc.torch._backend import Backend, ProcessGroup, communicator, register, replace_gloo
from libdsc.torch._errors import Error

__all__ = ["Backend", "Error", "ProcessGroup", "communicator", "register", "replace_gloo"]

register()
