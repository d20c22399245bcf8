# Collectives with a root, whose number is the keyword `root` (0 by default).

"""
    bcast!(x, comm; root = 0)

Copies the root's elements to all ranks.
"""
bcast!(x, comm::Comm; root::Integer = 0) = _bcast(Blocking(), x, comm, root)

"The asynchronous form of `bcast!`: returns a `Work`."
ibcast!(x, comm::Comm; root::Integer = 0) = _bcast(Started(), x, comm, root)

function _bcast(mode, x, comm, root)
    expect_rank("root", root, comm)
    is_root = comm.rank == root
    source = is_root ? input(x) : output(x)
    target = is_root ? Dense(x) : source # the root's array is only read, so nothing is copied back
    dtype, width = carrier(eltype(x))
    return execute(mode, Raw.dsc_broadcast, comm, source, target, address(source), address(source),
        width * count_of(x), dtype, Int32(root))
end

"""
    reduce!(x, op, comm; root = 0)
    reduce!(send, recv, op, comm; root = 0)

Combines the elements of all ranks; only the root gets the result. Elsewhere `recv` is not used and may be `nothing`.
`op` is as in `allreduce!`.
"""
reduce!(x, op::F, comm::Comm; root::Integer = 0) where {F} = _reduce(Blocking(), x, x, op, comm, root)
reduce!(send, recv, op::F, comm::Comm; root::Integer = 0) where {F} = _reduce(Blocking(), send, recv, op, comm, root)

"The asynchronous form of `reduce!`: returns a `Work`."
ireduce!(x, op::F, comm::Comm; root::Integer = 0) where {F} = _reduce(Started(), x, x, op, comm, root)
ireduce!(send, recv, op::F, comm::Comm; root::Integer = 0) where {F} = _reduce(Started(), send, recv, op, comm, root)

function _reduce(mode, send, recv, op::F, comm, root) where {F}
    expect_rank("root", root, comm)
    source, target = rooted(send, recv, comm.rank == root, count_of(send))
    number = number_or_function(op, eltype(send))
    number === nothing && return fold_root(mode, source, target, op, comm, root)
    dtype, width = carrier(eltype(send))
    return execute(mode, Raw.dsc_reduce, comm, source, target, address(source), address(target),
        width * count_of(send), dtype, number, Int32(root))
end

"Returns the buffers of an operation whose result only the root gets. Elsewhere the target is nothing."
function rooted(send, recv, is_root, expected)
    is_root || return input(send), nothing
    expect_same_type(send, recv)
    expect_count("recv", recv, expected)
    send === recv || return input(send), output(recv)
    target = inout(recv)
    return target, target
end

@inline address(::Nothing) = C_NULL

"""
    gather!(send, recv, comm; root = 0)

Gathers the elements of every rank on the root, in rank order along the last dimension of `recv`. Elsewhere `recv` is
not used and may be `nothing`.
"""
gather!(send, recv, comm::Comm; root::Integer = 0) = _gather(Blocking(), send, recv, comm, root)

"The asynchronous form of `gather!`: returns a `Work`."
igather!(send, recv, comm::Comm; root::Integer = 0) = _gather(Started(), send, recv, comm, root)

function _gather(mode, send, recv, comm, root)
    expect_rank("root", root, comm)
    source, target = rooted(send, recv, comm.rank == root, comm.size * count_of(send))
    dtype, width = carrier(eltype(send))
    return execute(mode, Raw.dsc_gather, comm, source, target, address(source), address(target),
        width * count_of(send), dtype, Int32(root))
end

"""
    scatter!(send, recv, comm; root = 0)

Sends part r of the root's `send`, along its last dimension, to rank r. Elsewhere `send` is not used and may be
`nothing`.
"""
scatter!(send, recv, comm::Comm; root::Integer = 0) = _scatter(Blocking(), send, recv, comm, root)

"The asynchronous form of `scatter!`: returns a `Work`."
iscatter!(send, recv, comm::Comm; root::Integer = 0) = _scatter(Started(), send, recv, comm, root)

function _scatter(mode, send, recv, comm, root)
    expect_rank("root", root, comm)
    source = nothing
    if comm.rank == root
        expect_same_type(send, recv)
        expect_count("send", send, comm.size * count_of(recv))
        source = input(send)
    end
    target = output(recv)
    dtype, width = carrier(eltype(recv))
    return execute(mode, Raw.dsc_scatter, comm, source, target, address(source), address(target),
        width * count_of(recv), dtype, Int32(root))
end
