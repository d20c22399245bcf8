# A backend of Lux.DistributedUtils, and an optimizer that reduces gradients in buckets instead of leaf by leaf.

module LibDSCLuxExt

import LibDSC
import Lux
import Optimisers

using Lux: DistributedUtils

"A backend of `Lux.DistributedUtils` over a communicator: `LibDSC.lux_backend()` returns this type."
struct DscBackend <: Lux.AbstractLuxDistributedBackend
    comm::LibDSC.Comm
end

LibDSC.lux_backend() = DscBackend

DistributedUtils.initialized(::Type{DscBackend}) = LibDSC.is_initialized()
DistributedUtils.force_initialize(::Type{DscBackend}; options...) = (LibDSC.init(; options...); nothing)
DistributedUtils.unsafe_get_distributed_backend(::Type{DscBackend}) = DscBackend(LibDSC.world())
DistributedUtils.local_rank(backend::DscBackend) = backend.comm.rank # Lux means the rank in the job
DistributedUtils.total_workers(backend::DscBackend) = backend.comm.size

operation(op) = op === DistributedUtils.avg ? LibDSC.AVG : op

DistributedUtils.bcast_impl!(backend::DscBackend, x, device; root = 0) = LibDSC.bcast!(x, backend.comm; root = root)

function DistributedUtils.bcast_impl!(backend::DscBackend, send, recv, device; root = 0)
    backend.comm.rank == root && copyto!(recv, send)
    return LibDSC.bcast!(recv, backend.comm; root = root)
end

DistributedUtils.allreduce_impl!(backend::DscBackend, x, op, device) =
    LibDSC.allreduce!(x, operation(op), backend.comm)
DistributedUtils.allreduce_impl!(backend::DscBackend, send, recv, op, device) =
    LibDSC.allreduce!(send, recv, operation(op), backend.comm)
DistributedUtils.reduce_impl!(backend::DscBackend, x, op, device; root = 0) =
    LibDSC.reduce!(x, operation(op), backend.comm; root = root)
DistributedUtils.reduce_impl!(backend::DscBackend, send, recv, op, device; root = 0) =
    LibDSC.reduce!(send, recv, operation(op), backend.comm; root = root)

# `DistributedUtils.synchronize!!` needs no method: Lux builds it from bcast!.

"""
The state of an optimizer over all parameters, and the reducer that averages their gradients in buckets. Use it like the
state of `Optimisers.setup`: `state, params = Optimisers.update!(state, params, grads)`.
"""
struct BucketedOptimizer{R, S}
    reducer::R
    state::S
end

function LibDSC.distributed_optimizer(backend::DscBackend, rule::Optimisers.AbstractRule, params; options...)
    reducer = LibDSC.Reducer(backend.comm, params; options...)
    return BucketedOptimizer(reducer, Optimisers.setup(rule, params))
end

function Optimisers.update!(optimizer::BucketedOptimizer, params, grads)
    state, updated = Optimisers.update!(optimizer.state, params, LibDSC.reduce!(optimizer.reducer, grads))
    return BucketedOptimizer(optimizer.reducer, state), updated
end

end
