"""
A communicator: a group of ranks. `comm.rank` is the rank of this process in it, from 0; `comm.size` the number of
ranks. Only one task at a time may call operations of a communicator.
"""
mutable struct Comm
    handle::Ptr{Raw.dsc_comm_t}
    rank::Int
    size::Int
    name::String
    progress_thread::Bool # whether a thread of the library drives asynchronous operations
    owned::Union{Owned, Nothing} # nothing for a world, which finalize() releases
end

function Comm(handle::Ptr{Raw.dsc_comm_t}, owned = nothing)
    number(query) = (out = Ref{Int32}(0); check(query(handle, out)); Int(out[]))
    name = text_of((room...) -> Raw.dsc_comm_name(handle, room...))
    return Comm(handle, number(Raw.dsc_comm_rank), number(Raw.dsc_comm_size), name,
        number(Raw.dsc_comm_progress_thread) != 0, owned)
end

Base.show(io::IO, comm::Comm) = print(io, "Comm(\"", comm.name, "\", rank ", comm.rank, " of ", comm.size, ")")

"Returns the rank of this process in a communicator, from 0."
rank(comm::Comm) = comm.rank

"Returns the number of ranks of a communicator."
Base.size(comm::Comm) = comm.size

"""
    init(; options...) -> Comm
    init(body; options...)

Joins the ranks of the job into one world and returns its communicator. The second form calls `body` with it and then
`finalize()`; if `body` throws, this rank leaves the world at once, and the errors of ranks that wait for it name it.

Options: `rank`, `world_size`, `local_rank`, `init_method`, `job_id`, `token`, `port`, `timeout`, `init_timeout`,
`stall_timeout` (all in seconds), `progress_thread`. By default all come from the launcher or the environment; see
docs/bootstrap.md.
"""
function init(; options...)
    reap()
    given, texts = init_options(options)
    world = Ref{Ptr{Raw.dsc_comm_t}}(C_NULL)
    GC.@preserve texts given world check(outside_gc(Raw.dsc_init_distributed, pointer_to(given), pointer_to(world)))
    return Comm(world[])
end

function init(body::Function; options...)
    world = init(; options...)
    result = try
        body(world)
    catch
        Raw.dsc_comm_destroy(world.handle)
        rethrow()
    end
    is_current(world) && finalize()
    return result
end

# Options in seconds, and the fields of the library, which are in milliseconds.
const SECONDS = Dict(:timeout => :timeout_ms, :init_timeout => :init_timeout_ms, :stall_timeout => :stall_timeout_ms)
const INIT_OPTIONS = (:rank, :world_size, :local_rank, :port, :progress_thread)
const INIT_TEXTS = (:init_method, :job_id, :token)

"Returns the struct of options, and the texts that it points to."
function init_options(given)
    changes, texts = Dict{Symbol, Any}(), Dict{Symbol, String}()
    for (name, value) in given
        if haskey(SECONDS, name)
            changes[SECONDS[name]] = milliseconds(value)
        elseif name in INIT_TEXTS
            texts[name] = String(value)
            changes[name] = Base.unsafe_convert(Cstring, texts[name])
        elseif name in INIT_OPTIONS
            changes[name] = Int32(value)
        else
            known = join((INIT_OPTIONS..., INIT_TEXTS..., keys(SECONDS)...), ", ")
            invalid("init has no option `$name`; expected one of $known")
        end
    end
    return Ref(changed(defaults(Raw.dsc_init_options_t, Raw.dsc_init_options_init); changes...)), texts
end

"Returns the communicator of all ranks, after `init()`."
function world()
    handle = Ref{Ptr{Raw.dsc_comm_t}}(C_NULL)
    check(Raw.dsc_world(handle))
    return Comm(handle[])
end

"Returns whether `init()` was called and `finalize()` was not."
function is_initialized()
    initialized = Ref{Int32}(0)
    check(Raw.dsc_is_initialized(initialized))
    return initialized[] != 0
end

is_current(comm::Comm) = is_initialized() && world().handle == comm.handle

"Waits until all ranks have called it, then ends the world."
function finalize()
    reap()
    check(outside_gc(Raw.dsc_finalize))
    return
end

"Fails all pending and later operations of a communicator on all ranks, with `RevokedError`. Any task may call it."
function abort(comm::Comm)
    check(Raw.dsc_comm_abort(comm.handle))
    return
end

"Sets the deadline, in seconds, of operations that start from now on."
function set_timeout!(comm::Comm, seconds)
    check(Raw.dsc_comm_set_timeout(comm.handle, milliseconds(seconds)))
    return
end

"Returns the version of the library that was loaded."
function version()
    parts = [Ref{Int32}(0) for _ in 1:3]
    check(Raw.dsc_version(parts...))
    return VersionNumber(getindex.(parts)...)
end

"""
Calls a function of the library while collections of other threads do not wait for this one. The arguments must be
plain numbers and pointers to objects that the caller keeps alive, because nothing may be allocated meanwhile.
"""
@inline function outside_gc(raw::F, arguments...) where {F}
    state = ccall(:jl_gc_safe_enter, Int8, ())
    code = raw(arguments...)
    ccall(:jl_gc_safe_leave, Cvoid, (Int8,), state)
    return code
end
