# Objects of the library that Julia's collector may drop.
#
# A finalizer may run on any thread and in the middle of any call, so it only sets a flag and counts: it takes no lock,
# allocates nothing and does not call the library. The next ordinary call on any thread sees the count and releases
# what was dropped. A dropped operation that still runs keeps its buffers until a later call finds it complete.

"A handle of the library, and what must stay alive until it is released."
mutable struct Owned
    handle::Ptr{Cvoid}
    release::Function # takes this object; returns whether it has released the handle
    roots::Any
    dropped::Threads.Atomic{Bool}
end

const OWNED = Base.IdSet{Owned}()
const OWNED_LOCK = ReentrantLock()
const DROPPED = Threads.Atomic{Int}(0)

"Makes an entry that keeps `roots` alive until `release` or `forget` removes it."
function own(release, roots)
    owned = Owned(C_NULL, release, roots, Threads.Atomic{Bool}(false))
    lock(() -> push!(OWNED, owned), OWNED_LOCK)
    return owned
end

"Removes the entry: its handle was released, or there never was one."
function forget(owned::Owned)
    lock(OWNED_LOCK) do
        owned in OWNED || return
        delete!(OWNED, owned)
        owned.roots = nothing
        # A finalizer that runs later finds the flag set, and does not count the entry.
        Threads.atomic_xchg!(owned.dropped, true) && Threads.atomic_sub!(DROPPED, 1)
    end
    return
end

"For finalizers: leaves the release to the next call."
function drop(owned::Owned)
    Threads.atomic_xchg!(owned.dropped, true) || Threads.atomic_add!(DROPPED, 1)
    return
end

"Releases what was dropped. Every operation calls it; without dropped objects it reads one number."
@inline reap() = DROPPED[] > 0 ? reap_dropped() : nothing

@noinline function reap_dropped()
    trylock(OWNED_LOCK) || return # another thread does it
    dropped = try
        [owned for owned in OWNED if owned.dropped[]]
    finally
        unlock(OWNED_LOCK)
    end
    for owned in dropped
        owned.release(owned) && forget(owned)
    end
    return
end
