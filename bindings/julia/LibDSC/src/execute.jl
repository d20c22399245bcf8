# How operations call the library: all have a blocking and an asynchronous form, which differ only in their mode.

struct Blocking end
struct Started end

"The stream of an operation: that of its target or, without one, of its source."
@inline stream_of(source, target) = stream_of(target === nothing ? source : target)

@inline result_of(buffer::Buffer) = buffer.array

"""
Calls an operation. `source` and `target` are its buffers, or nothing; `arguments` all arguments between the
communicator and the stream. Returns the array of the target, or a `Work`.
"""
@inline function execute(::Blocking, raw::F, comm::Comm, source, target, arguments...) where {F}
    GC.@preserve source target comm begin
        code = outside_gc(raw, comm.handle, arguments..., stream_of(source, target), C_NULL)
    end
    code < 0 && throw_last(code)
    reap()
    target === nothing && return nothing
    unpack(target)
    return result_of(target)
end

function execute(::Started, raw::F, comm::Comm, source, target, arguments...) where {F}
    reap()
    owned = own(release_work, (source, target, comm)) # before the start, so that the buffers are always kept
    handle = Ref{Ptr{Raw.dsc_work_t}}(C_NULL)
    code = GC.@preserve source target raw(comm.handle, arguments..., stream_of(source, target), handle)
    if code < 0
        failure = last_error(code) # before forget(), which may wait for a lock, and other tasks fail meanwhile
        forget(owned)
        throw(failure)
    end
    owned.handle = handle[]
    work = Work(owned, comm, target, false, nothing, ReentrantLock())
    finalizer(work -> work.completed || drop(work.owned), work)
    return work
end
