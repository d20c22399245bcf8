# Julia objects, by Serialization. Deserializing runs code that the sender chooses, so use these only between ranks that
# trust each other.

function pack(object)
    buffer = IOBuffer()
    Serialization.serialize(buffer, object)
    return take!(buffer)
end

unpack_object(bytes) = Serialization.deserialize(IOBuffer(bytes))

"""
    bcast(object, comm; root = 0)

Returns the root's object on all ranks, by Serialization; `object` is ignored elsewhere. If it cannot be serialized,
all ranks throw. For arrays, `bcast!` is faster.
"""
function bcast(object, comm::Comm; root::Integer = 0)
    expect_rank("root", root, comm)
    is_root = comm.rank == root
    bytes, failed = is_root ? try_pack(object) : (UInt8[], false)
    header = bcast!([length(bytes), Int(failed)], comm; root = root)
    is_root || (bytes = Vector{UInt8}(undef, header[1]))
    bcast!(bytes, comm; root = root)
    header[2] == 0 || not_packed("bcast", root, bytes, comm)
    return is_root ? object : unpack_object(bytes)
end

"Returns the bytes of an object and false, or the text of the failure and true."
function try_pack(object)
    try
        return pack(object), false
    catch error
        return Vector{UInt8}(codeunits(sprint(showerror, error))), true
    end
end

@noinline not_packed(name, rank, bytes, comm) = throw(error_of(Raw.DSC_ERR_INVALID_ARG,
    "$name: the object of rank $rank cannot be serialized: $(String(copy(bytes)))"; rank = Int(rank), ranks = [Int(rank)],
    group = comm.name))

"""
    allgather_object(object, comm) -> Vector

Returns the objects of all ranks, in rank order, by Serialization.
"""
function allgather_object(object, comm::Comm)
    bytes, failed = try_pack(object)
    headers = allgather([length(bytes), Int(failed)], comm)
    counts = headers[1:2:end]
    joined = allgatherv!(bytes, Vector{UInt8}(undef, sum(counts)), counts, comm)
    ends = cumsum(counts)
    parts = [joined[ends[i] - counts[i] + 1:ends[i]] for i in 1:comm.size]
    bad = findfirst(!iszero, headers[2:2:end])
    bad === nothing || not_packed("allgather_object", bad - 1, parts[bad], comm)
    return [rank == comm.rank ? object : unpack_object(parts[rank + 1]) for rank in 0:comm.size - 1]
end

"""
    send_object(object, comm; dest)

Sends an object to one rank, which calls `recv_object`.
"""
function send_object(object, comm::Comm; dest::Integer)
    bytes, failed = try_pack(object)
    send([length(bytes), Int(failed)], comm; dest = dest)
    send(bytes, comm; dest = dest)
    failed && not_packed("send_object", comm.rank, bytes, comm)
    return
end

"""
    recv_object(comm; source)

Returns the object that one rank sends with `send_object`.
"""
function recv_object(comm::Comm; source::Integer)
    header = recv!(zeros(Int, 2), comm; source = source)
    bytes = recv!(Vector{UInt8}(undef, header[1]), comm; source = source)
    header[2] == 0 || not_packed("recv_object", source, bytes, comm)
    return unpack_object(bytes)
end
