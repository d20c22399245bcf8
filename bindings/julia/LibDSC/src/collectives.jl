# Collectives whose result is the same kind of buffer on every rank. The forms with an i return a Work at once.
# Operations are type parameters, because Julia otherwise calls a function that it only passes on by a slow path.

"""
    allreduce!(x, op, comm)
    allreduce!(send, recv, op, comm)

Combines the elements of all ranks; every rank gets the result, in `x` or `recv`, which is returned.

`op` is `+`, `*`, `max`, `min`, `&`, `|`, `xor`, `LibDSC.AVG`, or any function of two elements. Functions that the
library does not know are evaluated by every rank on gathered elements; see docs/julia.md.
"""
allreduce!(x, op::F, comm::Comm) where {F} = allreduce!(IN_PLACE, x, op, comm)
allreduce!(send, recv, op::F, comm::Comm) where {F} = _allreduce(Blocking(), send, recv, op, comm)

"The asynchronous form of `allreduce!`: returns a `Work`."
iallreduce!(x, op::F, comm::Comm) where {F} = iallreduce!(IN_PLACE, x, op, comm)
iallreduce!(send, recv, op::F, comm::Comm) where {F} = _allreduce(Started(), send, recv, op, comm)

"""
    allreduce(x, op, comm)

Returns the combined elements of all ranks: a number for a number, otherwise a new array.
"""
allreduce(x::Number, op::F, comm::Comm) where {F} = allreduce!(Ref(x), op, comm)[]
allreduce(x::AbstractArray, op::F, comm::Comm) where {F} = allreduce!(x, similar(x), op, comm)

@inline function _allreduce(mode, send, recv, op::F, comm) where {F}
    source, target = pair(send, recv, count_of(recv))
    number = number_or_function(op, eltype(recv))
    number === nothing && return fold_all(mode, source, target, op, comm)
    dtype, width = carrier(eltype(recv))
    return execute(mode, Raw.dsc_all_reduce, comm, source, target, address(source), address(target),
        width * count_of(recv), dtype, number)
end

"""
Returns the buffers of an operation that may be in place. Without a send buffer, both are the same one.
"""
@inline function pair(send, recv, expected)
    expect_same_type(send, recv)
    expect_count("send", send, expected)
    return input(send), output(recv)
end

@inline function pair(::InPlace, recv, expected)
    target = inout(recv)
    return target, target
end

"""
    allgather!(send, recv, comm)
    allgather!(recv, comm)

Gathers the elements of every rank, in rank order along the last dimension of `recv`. In place, this rank's elements
are already in its part of `recv`.
"""
allgather!(recv, comm::Comm) = allgather!(IN_PLACE, recv, comm)
allgather!(send, recv, comm::Comm) = _allgather(Blocking(), send, recv, comm)

"The asynchronous form of `allgather!`: returns a `Work`."
iallgather!(recv, comm::Comm) = iallgather!(IN_PLACE, recv, comm)
iallgather!(send, recv, comm::Comm) = _allgather(Started(), send, recv, comm)

"""
    allgather(x, comm)

Returns the elements of all ranks: a vector of numbers, or an array with the last dimension of `x` times the ranks.
"""
allgather(x::Number, comm::Comm) = allgather!(Ref(x), Vector{typeof(x)}(undef, comm.size), comm)
allgather(x::AbstractArray, comm::Comm) = allgather!(x, similar(x, joined(x, comm.size)), comm)

"The dimensions of `n` arrays like this one, joined along the last dimension."
joined(x::AbstractArray, n) = ndims(x) == 0 ? (n,) : (size(x)[1:end-1]..., n * size(x, ndims(x)))

@inline function _allgather(mode, send, recv, comm)
    each = part_of("recv", recv, comm)
    source, target = pair(send, recv, each)
    dtype, width = carrier(eltype(recv))
    offset = in_place(send) ? comm.rank * each * sizeof(eltype(recv)) : 0
    return execute(mode, Raw.dsc_all_gather, comm, source, target, address(source) + offset, address(target),
        width * each, dtype)
end

"Returns the number of elements of one rank's part of a buffer."
@inline function part_of(what, array, comm)
    count_of(array) % comm.size == 0 || not_divisible(what, count_of(array), comm.size)
    return div(count_of(array), comm.size)
end

@noinline not_divisible(what, count, ranks) = invalid("$what has $count elements; expected a multiple of the $ranks ranks")

"""
    reduce_scatter!(send, recv, op, comm)

Combines the elements of all ranks; rank r gets part r of the result, along the last dimension of `send`.
"""
reduce_scatter!(send, recv, op::F, comm::Comm) where {F} = _reduce_scatter(Blocking(), send, recv, op, comm)

"The asynchronous form of `reduce_scatter!`: returns a `Work`."
ireduce_scatter!(send, recv, op::F, comm::Comm) where {F} = _reduce_scatter(Started(), send, recv, op, comm)

@inline function _reduce_scatter(mode, send, recv, op::F, comm) where {F}
    expect_same_type(send, recv)
    expect_count("send", send, comm.size * count_of(recv))
    number = known_op(op, eltype(recv), "reduce_scatter!")
    source, target = input(send), output(recv)
    dtype, width = carrier(eltype(recv))
    return execute(mode, Raw.dsc_reduce_scatter, comm, source, target, address(source), address(target),
        width * count_of(recv), dtype, number)
end

"""
    alltoall!(send, recv, comm)
    alltoall!(x, comm)

Sends part r of `send` to rank r; `recv` gets the parts in rank order. Parts are along the last dimension.
"""
alltoall!(x, comm::Comm) = alltoall!(IN_PLACE, x, comm)
alltoall!(send, recv, comm::Comm) = _alltoall(Blocking(), send, recv, comm)

"The asynchronous form of `alltoall!`: returns a `Work`."
ialltoall!(x, comm::Comm) = ialltoall!(IN_PLACE, x, comm)
ialltoall!(send, recv, comm::Comm) = _alltoall(Started(), send, recv, comm)

@inline function _alltoall(mode, send, recv, comm)
    each = part_of("recv", recv, comm)
    source, target = pair(send, recv, count_of(recv))
    dtype, width = carrier(eltype(recv))
    return execute(mode, Raw.dsc_all_to_all, comm, source, target, address(source), address(target), width * each, dtype)
end

"Waits until all ranks have called it."
barrier(comm::Comm) = execute(Blocking(), Raw.dsc_barrier, comm, nothing, nothing)

"The asynchronous form of `barrier`: returns a `Work`."
ibarrier(comm::Comm) = execute(Started(), Raw.dsc_barrier, comm, nothing, nothing)

"""
    monitored_barrier(comm; timeout)

Waits at most `timeout` seconds until all ranks have called it. The error names every missing rank.
"""
function monitored_barrier(comm::Comm; timeout::Real)
    check(outside_gc(Raw.dsc_monitored_barrier, comm.handle, milliseconds(timeout)))
    return
end
