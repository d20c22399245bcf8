"""Operations of libdsc inside JAX programs: under jit, grad, vmap, scan, while_loop and cond, on the host.

    import libdsc as dsc
    import libdsc.jax as dj

    world = dsc.init_distributed()

    @dj.jit                                   # in place of jax.jit
    def step(params, batch):
        loss, grads = jax.value_and_grad(loss_of)(params, batch)
        return update(params, dj.average_gradients(grads)), dj.all_reduce(loss, "avg")

All ranks must make the calls of a communicator in the same order. JAX does not guarantee an order for calls that do not
depend on each other. jit() of this module gives them the order of the program; see docs/jax.md. Use it instead of
jax.jit(), which refuses them.

Every operation takes comm= (the world by default). Programs that order their calls themselves also pass token=.
"""

from libdsc.jax import _cluster
from libdsc.jax._failures import failure_of
from libdsc.jax._jit import jit
from libdsc.jax._operations import (
    all_gather,
    all_reduce,
    all_to_all,
    average_gradients,
    barrier,
    broadcast,
    create_token,
    recv,
    reduce_scatter,
    send,
    send_recv,
    tensor_map,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "average_gradients",
    "barrier",
    "broadcast",
    "create_token",
    "failure_of",
    "jit",
    "recv",
    "reduce_scatter",
    "send",
    "send_recv",
    "tensor_map",
]

_cluster.offer()
