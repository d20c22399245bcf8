"""
    split(comm, color; key = comm.rank, name, timeout) -> Comm or nothing

Divides a communicator: ranks with the same color form a group, ordered by key and then by rank. A rank with the color
`nothing` joins no group and gets `nothing`. All ranks of `comm` must call it.

A group is released when the collector finds it unreachable, or by `free(group)`.
"""
function split(comm::Comm, color::Union{Integer, Nothing}; key::Integer = comm.rank, options...)
    number = color === nothing ? Int32(-1) : Int32(color)
    return make_group((group_options, group) -> Raw.dsc_comm_split(comm.handle, number, Int32(key), group_options, group), options)
end

"""
    group(comm, ranks; name, timeout) -> Comm or nothing

Makes a group of the listed ranks, in the order of the list. All ranks of `comm` must call it with the same list; those
that are not listed get `nothing`.
"""
function group(comm::Comm, ranks; options...)
    listed = collect(Int32, ranks)
    GC.@preserve listed begin
        first = pointer(listed)
        return make_group((group_options, group) -> Raw.dsc_comm_create_group(comm.handle, first, length(listed), group_options, group), options)
    end
end

function make_group(create, given)
    reap()
    options, texts = group_options(given)
    handle = Ref{Ptr{Raw.dsc_comm_t}}(C_NULL)
    GC.@preserve options texts handle check(outside_gc(create, pointer_to(options), pointer_to(handle)))
    handle[] == C_NULL && return nothing
    owned = own(release_group, nothing)
    owned.handle = handle[]
    comm = Comm(handle[], owned)
    finalizer(comm -> drop(comm.owned), comm)
    return comm
end

function group_options(given)
    options, name = defaults(Raw.dsc_comm_options_t, Raw.dsc_comm_options_init), get(given, :name, "")
    for option in keys(given)
        option in (:name, :timeout) || invalid("groups have no option `$option`; expected name or timeout")
    end
    haskey(given, :timeout) && (options = changed(options; timeout_ms = milliseconds(given[:timeout])))
    isempty(name) || (options = changed(options; name = Base.unsafe_convert(Cstring, name)))
    return Ref(options), name
end

release_group(owned::Owned) = Raw.dsc_comm_destroy(Ptr{Raw.dsc_comm_t}(owned.handle)) >= 0 || true

"Releases a group. Operations of other ranks that wait for this one fail with `PeerLeftError`."
function free(comm::Comm)
    comm.owned === nothing && invalid("free: $comm is a world; expected a group. Worlds end with finalize()")
    release_group(comm.owned)
    forget(comm.owned)
    return
end

"Returns the rank in the world of a rank of this communicator."
function global_rank(comm::Comm, rank::Integer)
    out = Ref{Int32}(0)
    check(Raw.dsc_comm_global_rank(comm.handle, Int32(rank), out))
    return Int(out[])
end

"""
    shrink(comm; name, timeout) -> Comm

Makes a working communicator of the surviving ranks after a failure. All of them must call it.
"""
shrink(comm::Comm; options...) =
    make_group((group_options, group) -> Raw.dsc_comm_shrink(comm.handle, group_options, group), options)
