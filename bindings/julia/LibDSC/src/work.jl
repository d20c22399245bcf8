"""
An operation that runs in the background. It keeps its arrays alive until it is complete, also if the `Work` is dropped.

- `wait(work)` waits and throws the failure; other tasks run meanwhile
- `fetch(work)` waits and returns the array that received the result
- `LibDSC.test(work)` returns whether it has completed

An array that is not contiguous gets the result in `wait`, `fetch`, or the call of `test` that returns true.
"""
mutable struct Work
    owned::Owned
    comm::Comm
    target::Any # the buffer with the result, or nothing
    completed::Bool
    failure::Union{DscError, Nothing}
    lock::ReentrantLock
end

handle_of(owned::Owned) = Ptr{Raw.dsc_work_t}(owned.handle)

"Releases the handle of a dropped work if the operation is complete."
function release_work(owned::Owned)
    is_complete(owned) || return false
    Raw.dsc_work_destroy(handle_of(owned))
    return true
end

function is_complete(owned::Owned)
    completed = Ref{Int32}(0)
    # A handle that is no longer valid belongs to a world that has ended, so nothing uses the buffers any more.
    return Raw.dsc_work_test(handle_of(owned), completed) < 0 || completed[] != 0
end

Base.show(io::IO, work::Work) =
    print(io, "Work(", work.comm.name, ", ", work.failure !== nothing ? "failed" : work.completed ? "completed" : "started", ")")

"""
    test(work) -> Bool

Returns whether the operation has completed, also if it failed. Never blocks.
"""
function test(work::Work)
    lock(work.lock) do
        work.completed || !is_complete(work.owned) || complete(work)
        return work.completed
    end
end

"Stores how the operation ended, and releases its handle and its buffers. The caller holds the lock."
function complete(work::Work)
    info = empty_struct(Raw.dsc_error_info_t)
    code = Raw.dsc_work_error_info(handle_of(work.owned), info)
    if code < 0 # the handle is not valid, so the result is not known
        work.failure = last_error(code)
    elseif field(info, :code) < 0
        work.failure = error_of(info)
    elseif work.target !== nothing
        unpack(work.target)
    end
    Raw.dsc_work_destroy(handle_of(work.owned))
    forget(work.owned)
    work.completed = true
    return
end

"""
    wait(work; timeout = nothing) -> Bool

Waits until the operation has completed, and throws its failure. Only this task waits: others run, and so does the
collector. With a timeout in seconds it returns false when that has passed; the operation continues.
"""
function Base.wait(work::Work; timeout::Union{Real, Nothing} = nothing)
    deadline = timeout === nothing ? Inf : time() + timeout
    while !test(work)
        left = deadline - time()
        left > 0 || return false
        work.comm.progress_thread ? poll(work, left) : drive(work)
    end
    work.failure === nothing || throw(work.failure)
    reap()
    return true
end

function Base.fetch(work::Work)
    wait(work)
    return work.target === nothing ? nothing : result_of(work.target)
end

"Waits for the descriptor of the operation. It is duplicated, because another task may complete the work meanwhile."
function poll(work::Work, seconds)
    descriptor = lock(() -> work.completed ? nothing : duplicate_descriptor(work), work.lock)
    descriptor === nothing && return
    try
        FileWatching.poll_fd(RawFD(descriptor), isfinite(seconds) ? seconds : -1; readable = true)
    finally
        ccall(:close, Int32, (Int32,), descriptor)
    end
    return
end

function duplicate_descriptor(work)
    found = Ref{Int32}(-1)
    check(Raw.dsc_work_eventfd(handle_of(work.owned), found))
    copy = ccall(:dup, Int32, (Int32,), found[])
    copy < 0 && throw(error_of(Raw.DSC_ERR_SYSTEM,
        "wait: the descriptor of the operation cannot be duplicated: $(Libc.strerror()); the operation continues"))
    return copy
end

"Drives operations from this task, in a world without a progress thread."
function drive(work::Work)
    Raw.dsc_comm_progress(work.comm.handle, Int32(0))
    yield()
    return
end
