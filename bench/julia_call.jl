# Measures the cost of a call from Julia: a 4-byte allreduce! compared with the same call from C, in turn, over the same
# communicator. A number is the median over the rounds of the time per call, in nanoseconds.
#
#     ./dev bench julia_call            one rank
#     ./dev bench julia_call RANKS      several

using LibDSC
import Libdl

const CALLS = 5000 # in one round
const ROUNDS = 31

median(times) = sort(times)[(length(times) + 1) ÷ 2]

function julia_ns(x, world)
    start = time_ns()
    for _ in 1:CALLS
        allreduce!(x, +, world)
    end
    return (time_ns() - start) / CALLS
end

c_ns(c_loop, x) = GC.@preserve x ccall(c_loop, Cdouble, (Ptr{Cfloat}, Cint), pointer(x), CALLS)

function compare(world, library)
    c_loop = Libdl.dlsym(Libdl.dlopen(library), :bench_call_ns)::Ptr{Cvoid}
    x = ones(Float32, 1)
    from_c, from_julia = Float64[], Float64[]
    julia_ns(x, world) # compiles it
    for _ in 1:ROUNDS
        LibDSC.barrier(world)
        push!(from_c, c_ns(c_loop, x))
        LibDSC.barrier(world)
        push!(from_julia, julia_ns(x, world))
    end
    minimum(from_c) < 0 && error("the all-reduce from C failed")
    world.rank == 0 || return
    c, julia = median(from_c), median(from_julia)
    for (name, ns) in ("C" => c, "Julia" => julia, "Julia over C" => julia - c)
        println(rpad(name, 24), lpad(round(Int, ns), 8), " ns")
    end
end

const LIBRARY = ARGS[1]
LibDSC.init(world -> compare(world, LIBRARY))
