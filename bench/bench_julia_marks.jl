# Times the marks of 150 gradients by a reducer in Julia and in C, in the same process and in turn.
#
#     cc -O2 -shared -fPIC -Icapi/include bench/mark_loop.c -o mark_loop.so -Lbuild/capi -ldsc
#     dscrun -n 2 -- julia bench/bench_julia_marks.jl ./mark_loop.so
#
# Prints the medians of the microseconds for all marks, without begin and finish, and their ratio.

using LibDSC, Libdl, Printf

const PARAMS, WARM_UP, ROUNDS = 150, 50, 1000

function mark_in_julia(reducer, grads)
    for i in length(grads):-1:1
        mark_ready!(reducer, i, grads[i])
    end
end

function mark_in_c(mark_all, reducer, addresses)
    code = ccall(mark_all, Int32, (Ptr{Cvoid}, Ptr{Ptr{Cvoid}}, Csize_t), reducer.owned.handle, addresses, length(addresses))
    code < 0 && error("the marks in C failed with $code")
end

"Runs one iteration and returns the nanoseconds of its marks."
function time_marks(mark, reducer)
    LibDSC.begin!(reducer)
    started = time_ns()
    mark()
    spent = time_ns() - started
    LibDSC.finish!(reducer)
    return Int(spent)
end

middle(values) = sort(values[WARM_UP + 1:end])[(length(values) - WARM_UP + 1) ÷ 2]

LibDSC.init() do world
    mark_all = dlsym(dlopen(ARGS[1]), :mark_all)
    for elements in (1, 256, 4096)
        params = [zeros(Float32, elements) for _ in 1:PARAMS]
        reducer = Reducer(world, params)
        kinds = ("copied" => deepcopy(params), "in views" => LibDSC.grad_views(reducer))
        for (kind, grads) in kinds
            addresses = Ptr{Cvoid}[pointer(grad) for grad in grads]
            in_c, in_julia = Int[], Int[]
            GC.@preserve grads for round in 1:WARM_UP + ROUNDS
                # An iteration is faster or slower after one of the other kind, so the order is changed every round.
                isodd(round) && push!(in_c, time_marks(() -> mark_in_c(mark_all, reducer, addresses), reducer))
                push!(in_julia, time_marks(() -> mark_in_julia(reducer, grads), reducer))
                iseven(round) && push!(in_c, time_marks(() -> mark_in_c(mark_all, reducer, addresses), reducer))
            end
            world.rank == 0 && @printf("%d gradients of %4d elements, %-8s  C %7.2f us  Julia %7.2f us  ratio %.3f\n", PARAMS,
                elements, kind, middle(in_c) / 1e3, middle(in_julia) / 1e3, middle(in_julia) / middle(in_c))
        end
    end
end
