# Collectives in which ranks have different numbers of elements. Counts are in elements, one entry per rank.

"The counts of a call as the library reads them: `width` elements of the library per Julia element."
function counts_of(what, counts, width, comm)
    length(counts) == comm.size || invalid("$what has $(length(counts)) entries; expected $(comm.size), one per rank")
    all(n -> n >= 0, counts) || invalid("$what has the entry $(minimum(counts)); expected 0 or more")
    return Csize_t[width * n for n in counts]
end

"""
    allgatherv!(send, recv, counts, comm)
    allgatherv!(recv, counts, comm)

Like `allgather!`, with `counts[r + 1]` elements of rank r. In place, this rank's elements are already in its part.
"""
allgatherv!(recv, counts, comm::Comm) = allgatherv!(IN_PLACE, recv, counts, comm)
allgatherv!(send, recv, counts, comm::Comm) = _allgatherv(Blocking(), send, recv, counts, comm)

"The asynchronous form of `allgatherv!`: returns a `Work`."
iallgatherv!(recv, counts, comm::Comm) = iallgatherv!(IN_PLACE, recv, counts, comm)
iallgatherv!(send, recv, counts, comm::Comm) = _allgatherv(Started(), send, recv, counts, comm)

function _allgatherv(mode, send, recv, counts, comm)
    dtype, width = carrier(eltype(recv))
    listed = counts_of("counts", counts, width, comm)
    expect_count("recv", recv, sum(counts))
    source, target = pair(send, recv, counts[comm.rank + 1])
    offset = in_place(send) ? sum(counts[1:comm.rank]) * sizeof(eltype(recv)) : 0
    return execute(mode, Raw.dsc_all_gather_v, comm, (source, listed), target, address(source) + offset,
        address(target), pointer(listed), dtype)
end

"""
    reduce_scatterv!(send, recv, counts, op, comm)

Like `reduce_scatter!`, with `counts[r + 1]` elements for rank r.
"""
reduce_scatterv!(send, recv, counts, op::F, comm::Comm) where {F} = _reduce_scatterv(Blocking(), send, recv, counts, op, comm)

"The asynchronous form of `reduce_scatterv!`: returns a `Work`."
ireduce_scatterv!(send, recv, counts, op::F, comm::Comm) where {F} = _reduce_scatterv(Started(), send, recv, counts, op, comm)

function _reduce_scatterv(mode, send, recv, counts, op::F, comm) where {F}
    expect_same_type(send, recv)
    dtype, width = carrier(eltype(recv))
    listed = counts_of("counts", counts, width, comm)
    expect_count("send", send, sum(counts))
    expect_count("recv", recv, counts[comm.rank + 1])
    number = known_op(op, eltype(recv), "reduce_scatterv!")
    source, target = input(send), output(recv)
    return execute(mode, Raw.dsc_reduce_scatter_v, comm, (source, listed), target, address(source), address(target),
        pointer(listed), dtype, number)
end

"""
    alltoallv!(send, send_counts, recv, recv_counts, comm)

Like `alltoall!`, with `send_counts[r + 1]` elements for rank r and `recv_counts[r + 1]` elements from it.
"""
alltoallv!(send, send_counts, recv, recv_counts, comm::Comm) =
    _alltoallv(Blocking(), send, send_counts, recv, recv_counts, comm)

"The asynchronous form of `alltoallv!`: returns a `Work`."
ialltoallv!(send, send_counts, recv, recv_counts, comm::Comm) =
    _alltoallv(Started(), send, send_counts, recv, recv_counts, comm)

function _alltoallv(mode, send, send_counts, recv, recv_counts, comm)
    expect_same_type(send, recv)
    dtype, width = carrier(eltype(recv))
    sent = counts_of("send_counts", send_counts, width, comm)
    received = counts_of("recv_counts", recv_counts, width, comm)
    expect_count("send", send, sum(send_counts))
    expect_count("recv", recv, sum(recv_counts))
    source, target = input(send), output(recv)
    return execute(mode, Raw.dsc_all_to_all_v, comm, (source, sent, received), target, address(source), pointer(sent),
        address(target), pointer(received), dtype)
end
