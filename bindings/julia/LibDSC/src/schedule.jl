# Pipeline schedules: what each stage computes, sends and receives, and in which order.

"""
    Schedule(name; stages, micro_batches, stage = 0, options...)

The schedule of one stage of a pipeline, such as "1f1b", "gpipe", "interleaved_1f1b" or "zb_h1"; docs/pipeline.md lists
them. Iterating over it gives its instructions. It needs no ranks; `pipe_run` runs it.

Stages, micro-batches, chunks and buffers are numbered from 0, like ranks. Options: `chunks`, `micro_batch_group`,
`forward_only`, `merge_backward`, `messages` (`:when_needed` or `:at_once`).
"""
mutable struct Schedule
    owned::Owned
    Schedule(owned::Owned) = finalizer(schedule -> drop(schedule.owned), new(owned))
end

"An instruction of a schedule. Fields that do not apply to its op are nothing."
struct Instruction
    step::Int
    op::Symbol # such as :forward or :send_activation
    micro_batch::Union{Int, Nothing}
    chunk::Union{Int, Nothing}
    buffer::Union{Int, Nothing}
    peer::Union{Int, Nothing} # stage at the other end of a send or receive
end

applied(number) = number < 0 ? nothing : Int(number)
op_name(op) = Symbol(unsafe_string(Raw.dsc_pipe_op_name(op)))

Instruction(raw::Raw.dsc_pipe_instruction_t) = Instruction(raw.step, op_name(raw.op), applied(raw.micro_batch),
    applied(raw.chunk), applied(raw.buffer), applied(raw.peer))

function Schedule(name::AbstractString; stages::Integer, micro_batches::Integer, options...)
    given, texts = options_of(Raw.dsc_pipe_schedule_options_t, Raw.dsc_pipe_schedule_options_init, "Schedule",
        pairs((name = name, stages = stages, micro_batches = micro_batches, options...)))
    return GC.@preserve texts new_schedule(out -> Raw.dsc_pipe_schedule_create(given, out))
end

new_schedule(create) = Schedule(owned_handle(create, Raw.dsc_pipe_schedule_t, Raw.dsc_pipe_schedule_destroy))

"""
    Schedule(orders; micro_batches, options...)

A schedule of your own: `orders[s + 1]` lists what stage s computes, as tuples of op, micro-batch and, if there are
several, chunk: `(:forward, 0)`, `(:backward, 0)`.
"""
function Schedule(orders::AbstractVector{<:AbstractVector}; micro_batches::Integer, options...)
    given, texts = options_of(Raw.dsc_pipe_schedule_options_t, Raw.dsc_pipe_schedule_options_init, "Schedule",
        pairs((stages = length(orders), micro_batches = micro_batches, options...)))
    listed = [compute(operation...) for order in orders for operation in order]
    starts = Csize_t[0; cumsum(length.(orders))]
    return GC.@preserve texts new_schedule(out -> Raw.dsc_pipe_schedule_create_custom(given, listed, starts, out))
end

compute(op::Symbol, micro_batch, chunk = 0; overlaps = false) =
    Raw.dsc_pipe_compute_t(enumerator("DSC_PIPE_OP_", "op", op), chunk, micro_batch, overlaps)

schedule_handle(schedule::Schedule) = Ptr{Raw.dsc_pipe_schedule_t}(schedule.owned.handle)
free(schedule::Schedule) = free(schedule.owned)

"Returns the schedule of another stage of the same pipeline."
at_stage(schedule::Schedule, stage::Integer) =
    new_schedule(out -> Raw.dsc_pipe_schedule_at_stage(schedule_handle(schedule), stage, out))

"Returns the name of a schedule."
name(schedule::Schedule) = text_of((room...) -> Raw.dsc_pipe_schedule_name(schedule_handle(schedule), room...))

"Returns the number of steps of a schedule."
steps(schedule::Schedule) = number_of(out -> Raw.dsc_pipe_schedule_steps(schedule_handle(schedule), out), Int64)

"Returns how many micro-batches the stage must be able to hold at the same time."
buffers(schedule::Schedule) = number_of(out -> Raw.dsc_pipe_schedule_buffers(schedule_handle(schedule), out))

Base.show(io::IO, schedule::Schedule) = print(io, "LibDSC.Schedule(\"", name(schedule), "\")")
Base.IteratorSize(::Type{Schedule}) = Base.SizeUnknown()
Base.eltype(::Type{Schedule}) = Instruction

function Base.iterate(schedule::Schedule, started = false)
    started || check(Raw.dsc_pipe_schedule_reset(schedule_handle(schedule)))
    instruction = empty_struct(Raw.dsc_pipe_instruction_t)
    check(Raw.dsc_pipe_schedule_next(schedule_handle(schedule), instruction)) == Raw.DSC_DONE && return nothing
    return Instruction(instruction[]), true
end
