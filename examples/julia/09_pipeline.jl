# A pipeline whose stages multiply by 2: with 4 ranks a number x becomes 16 x.
#
#     dscrun -n 4 -- julia 09_pipeline.jl
#
# Stage 0 prints its schedule; then all stages run their schedules.

using LibDSC, Printf

const MICRO_BATCHES = 4

"A stage computes y = weight x. The loss of a micro-batch is the last stage's y."
mutable struct Stage
    weight::Float64
    weight_grad::Float64
    x::Dict{Int, Float64} # inputs of the micro-batches that are in progress
end

input(stage, call) = isempty(call.inputs) ? stage.x[call.micro_batch] : call.inputs[1][1]

"Called on the first stage for inputs, and on the last stage for labels, which are not needed here."
load(stage, call) = stage.x[call.micro_batch] = call.micro_batch + 1.0

function forward(stage, call)
    y = stage.weight * input(stage, call)
    call.is_last && return y
    call.outputs[1][1] = y # the library sends it when the schedule says so
    return
end

function backward(stage, call)
    grad = isempty(call.output_grads) ? 1 / MICRO_BATCHES : call.output_grads[1][1]
    stage.weight_grad += input(stage, call) * grad
    isempty(call.input_grads) || (call.input_grads[1][1] = stage.weight * grad)
    return
end

"Returns text such as \"send_activation 0 to 1\"."
function describe(instruction)
    words = [string(instruction.op)]
    instruction.micro_batch === nothing || push!(words, string(instruction.micro_batch))
    direction = startswith(words[1], "send") ? "to" : "from"
    instruction.peer === nothing || push!(words, "$direction $(instruction.peer)")
    return join(words, " ")
end

function show_steps(schedule)
    instructions = collect(schedule)
    for step in unique(instruction.step for instruction in instructions)
        println("step $step: ", join([describe(i) for i in instructions if i.step == step], ", "))
    end
end

LibDSC.init() do world
    schedule = LibDSC.Schedule("1f1b"; stages = world.size, stage = world.rank, micro_batches = MICRO_BATCHES)
    world.rank == 0 && show_steps(schedule)

    stage = Stage(2, 0, Dict())
    number = Float64 => (1,) # what two stages exchange
    mean_loss = LibDSC.pipe_run(schedule, world; # no shared weights, no other replicas, and no optimizer
        load_micro_batch = call -> load(stage, call),
        forward = call -> forward(stage, call),
        backward = call -> backward(stage, call),
        inputs = world.rank > 0 ? [number] : [],
        outputs = world.rank < world.size - 1 ? [number] : [])
    @assert mean_loss == 2^world.size * 2.5 # x is 1, 2, 3, 4
    @assert stage.weight_grad == mean_loss / 2
    @printf("stage %d: mean loss %g, gradient of its weight %g\n", world.rank, mean_loss, stage.weight_grad)
end
