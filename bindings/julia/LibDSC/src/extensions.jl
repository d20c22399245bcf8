# What the package extensions in ext/ add methods to.

"""
    lux_backend()

Returns the type `DscBackend` for `Lux.DistributedUtils`. Needs Lux and Optimisers, loaded before.
"""
function lux_backend end

"""
    distributed_optimizer(backend, rule, params; options...)

Returns the state of an optimizer that averages gradients in buckets before every update; see `Reducer` for the options.
Needs Lux and Optimisers, loaded before.
"""
function distributed_optimizer end

"Whether an array is in host memory. The extension for CUDA.jl says no for its arrays."
is_on_host(::AbstractArray) = true

"The stream on which an operation on a buffer is queued; null for host memory."
@inline stream_of(buffer) = C_NULL
