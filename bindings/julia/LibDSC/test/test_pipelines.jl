# Pipeline schedules, and runs whose functions are in Julia.

const MICRO_BATCHES = 4

function test(world)
    test_schedules()
    for name in ("1f1b", "gpipe")
        test_run(world, name)
    end
    test_body_for_all(world)
    test_variable_shapes(world)
    test_throwing(world)
    test_wrong_arguments(world)
end

function test_schedules()
    schedule = LibDSC.Schedule("1f1b"; stages = 2, stage = 1, micro_batches = 2)
    listed = collect(schedule)
    @test [i.op for i in listed if i.op in (:forward, :backward)] == [:forward, :backward, :forward, :backward]
    @test collect(schedule) == listed && LibDSC.steps(schedule) > 0 && LibDSC.buffers(schedule) >= 1
    sends = filter(i -> i.op === :send_grad, listed)
    @test length(sends) == 2 && sends[1].peer == 0 && sends[1].micro_batch == 0
    @test string(LibDSC.at_stage(schedule, 0)) == "LibDSC.Schedule(\"1f1b\")"
    own = LibDSC.Schedule([[(:forward, 0), (:backward, 0)], [(:forward, 0), (:backward, 0)]]; micro_batches = 1, stage = 0)
    @test [i.op for i in own if i.op in (:forward, :backward)] == [:forward, :backward]
    err = try LibDSC.Schedule("1f1c"; stages = 2, micro_batches = 2) catch error; error end
    @test err isa LibDSC.InvalidArgError && occursin("1f1b", err.message)
    @test_throws LibDSC.InvalidArgError LibDSC.Schedule([[(:forward, 0)]]; micro_batches = 1)
    for i in 1:20
        LibDSC.Schedule("gpipe"; stages = 2, micro_batches = i)
        i % 5 == 0 && GC.gc()
    end
end

"What two stages exchange: a matrix and a vector of another type."
ends(world) = (
    inputs = world.rank > 0 ? [Float64 => (2, 3), Float32 => (4,)] : [],
    outputs = world.rank < world.size - 1 ? [Float64 => (2, 3), Float32 => (4,)] : [],
)

"Every stage doubles both arrays; the loss is the sum of the matrix on the last stage."
function test_run(world, name)
    schedule = LibDSC.Schedule(name; stages = world.size, stage = world.rank, micro_batches = MICRO_BATCHES)
    matrix = reshape(collect(1.0:6.0), 2, 3)
    grads, loaded = zeros(2, 3), Set{Int}()
    for run in 1:3
        fill!(grads, 0)
        mean = LibDSC.pipe_run(schedule, world; ends(world)...,
            load_micro_batch = call -> (push!(loaded, call.micro_batch); GC.gc(false)),
            forward = function (call)
                x = isempty(call.inputs) ? matrix .* (call.micro_batch + 1) : call.inputs[1]
                call.is_last && return 2sum(x)
                call.outputs[1] .= 2 .* x
                call.outputs[2] .= 1:4
                nothing
            end,
            backward = function (call)
                grad = isempty(call.output_grads) ? ones(2, 3) : call.output_grads[1]
                grads .+= grad
                isempty(call.input_grads) && return
                call.input_grads[1] .= 2 .* grad
                call.input_grads[2] .= 0
                @assert call.inputs[2] == 1:4
            end)
        @test mean ≈ 21 * 2.0^world.size * 2.5
        @test grads ≈ fill(MICRO_BATCHES * 2.0^(world.size - 1 - world.rank), 2, 3)
    end
    @test loaded == (world.rank in (0, world.size - 1) ? Set(0:MICRO_BATCHES - 1) : Set{Int}())
end

"One function for all kinds of instructions, as a do block; no rank asks for the mean."
function test_body_for_all(world)
    schedule = LibDSC.Schedule("1f1b"; stages = world.size, stage = world.rank, micro_batches = 2)
    seen = Symbol[]
    result = LibDSC.pipe_run(schedule, world; ends(world)..., mean_loss = false) do call
        push!(seen, call.op)
        foreach(x -> fill!(x, 1), call.op === :forward ? call.outputs : call.input_grads)
        return 0.0
    end
    @test result === nothing && count(isequal(:forward), seen) == 2 && last(seen) === :optimizer_step
end

"Micro-batch m has m + 1 columns."
function test_variable_shapes(world)
    schedule = LibDSC.Schedule("1f1b"; stages = world.size, stage = world.rank, micro_batches = 3)
    shape = [Float64 => (2, 3)]
    mean = LibDSC.pipe_run(schedule, world; variable_shapes = 1, inputs = world.rank > 0 ? shape : [],
        outputs = world.rank < world.size - 1 ? shape : [], backward = call -> foreach(x -> fill!(x, 0), call.input_grads),
        forward = function (call)
            x = isempty(call.inputs) ? fill(1.0, 2, call.micro_batch + 1) : call.inputs[1]
            @assert size(x) == (2, call.micro_batch + 1)
            call.is_last && return sum(x)
            LibDSC.resize_output!(call, 1, size(x)...) .= x
            nothing
        end)
    @test mean ≈ 4 # of 2, 4 and 6
end

struct OwnError <: Exception
    number::Int
end

Base.showerror(io::IO, error::OwnError) = print(io, "own error ", error.number, " ä")

"One rank throws: it gets its own exception, and the others an error that names it and has its text."
function test_throwing(world)
    group = LibDSC.split(world, 0; name = "throwing")
    schedule = LibDSC.Schedule("1f1b"; stages = world.size, stage = world.rank, micro_batches = MICRO_BATCHES)
    last_rank = world.size - 1
    err = try
        LibDSC.pipe_run(schedule, group; ends(world)..., backward = call -> foreach(x -> fill!(x, 0), call.input_grads),
            forward = function (call)
                group.rank == last_rank && call.micro_batch == 1 && throw(OwnError(7))
                foreach(x -> fill!(x, 1), call.outputs)
                return 1.0
            end)
    catch error
        error
    end
    if world.rank == last_rank
        @test err === OwnError(7)
    else
        @test err isa LibDSC.CallbackError && err.rank == last_rank && occursin("own error 7 ä", err.message)
    end
    LibDSC.free(schedule)
    GC.gc()
    @test LibDSC.allreduce(1, +, world) == world.size
end

function test_wrong_arguments(world)
    schedule = LibDSC.Schedule("1f1b"; stages = world.size, stage = world.rank, micro_batches = 2)
    @test_throws LibDSC.InvalidArgError LibDSC.pipe_run(schedule, world; ends(world)..., forwards = call -> 0.0)
    @test_throws LibDSC.InvalidArgError LibDSC.pipe_run(schedule, world; ends(world)...) # without functions
    alone = LibDSC.split(world, world.rank)
    single = LibDSC.Schedule("gpipe"; stages = 1, micro_batches = 1, forward_only = 1)
    err = try LibDSC.pipe_run(single, alone; forward = call -> nothing) catch error; error end
    @test err isa ErrorException && occursin("expected the loss", err.msg)
    long = "ä"^3000
    err = try LibDSC.pipe_run(LibDSC.Schedule("gpipe"; stages = 1, micro_batches = 1, forward_only = 1),
        LibDSC.split(world, world.rank); forward = call -> error(long)) catch error; error end
    @test err.msg == long
end
