# Julia infers these calls when it compiles the package, and not in every program.

for type in (Float32, Float64)
    for array in (Vector{type}, Matrix{type})
        precompile(allreduce!, (array, typeof(+), Comm))
        precompile(iallreduce!, (array, typeof(+), Comm))
        precompile(allgather!, (array, array, Comm))
        precompile(_bcast, (Blocking, array, Comm, Int))
    end
end
precompile(_bcast, (Blocking, Vector{Int}, Comm, Int))
precompile(_bcast, (Blocking, Vector{UInt8}, Comm, Int))
precompile(wait, (Work,))
precompile(poll, (Work, Float64))
precompile(init, ())
precompile(finalize, ())
precompile(barrier, (Comm,))
precompile(reap_dropped, ())
precompile(throw_last, (Int32,))
