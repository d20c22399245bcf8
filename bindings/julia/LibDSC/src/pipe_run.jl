# Runs pipeline schedules. The library calls functions of Julia on the thread that called `pipe_run`.

"""
What a function of `pipe_run` gets. The arrays are memory of the library, which is valid until the end of the backward
pass of this micro-batch.

- `instruction`: the `Instruction` to run; `op`, `micro_batch` and `chunk` are also fields of the call
- `inputs`, `outputs`: activations from the previous and for the next part of the model; empty at its ends
- `output_grads`, `input_grads`: in backward passes, the gradients to read and to write; nothing for integer types
- `is_last`: in `forward`, whether this is the last part of the model, whose function returns the loss
"""
struct PipeCall
    instruction::Instruction
    inputs::Vector{Any}
    outputs::Vector{Any}
    output_grads::Vector{Any}
    input_grads::Vector{Any}
    is_last::Bool
    address::Ptr{Raw.dsc_pipe_call_t}
end

Base.getproperty(call::PipeCall, name::Symbol) =
    name in (:op, :micro_batch, :chunk) ? getfield(getfield(call, :instruction), name) : getfield(call, name)

"The state of a run, which the callback finds by its address."
mutable struct PipeRun
    functions::Dict{Symbol, Function}
    inputs::Vector{Tuple{DataType, Dims}}
    outputs::Vector{Tuple{DataType, Dims}}
    failure::Any # the exception that ended the run on this rank
end

const PIPE_OPS = (:load_micro_batch, :forward, :backward, :backward_input, :backward_weight, :reduce_tied_grads,
    :reduce_grads, :optimizer_step)

"""
    pipe_run(schedule, comm; inputs, outputs, forward, backward, ..., mean_loss = true) -> Float64
    pipe_run(body, schedule, comm; inputs, outputs, mean_loss = true)

Runs a schedule: calls the functions, each with a `PipeCall`, and sends and receives activations and gradients between
them. Rank s of `comm` is stage s. Returns the mean of the losses that `forward` of the last part returned; with
`mean_loss = false` on all ranks, nothing.

Functions: `load_micro_batch`, `forward`, `backward`, `backward_input`, `backward_weight`, `reduce_tied_grads`,
`reduce_grads` and `optimizer_step`. The second form calls `body` for all of them; `call.op` says which. `inputs` and
`outputs` list what the stage exchanges, as pairs such as `Float32 => (64, 16)`; without them the stage is the first or
the last.

If a function throws, the run ends on all ranks: `pipe_run` throws the same exception on this rank, and `CallbackError`
with its text and this rank on the others.
"""
function pipe_run(schedule::Schedule, comm::Comm; inputs = (), outputs = (), mean_loss::Bool = true, options...)
    functions = Dict{Symbol, Function}(name => f for (name, f) in options if f isa Function)
    for name in keys(functions)
        name in PIPE_OPS || invalid("pipe_run has no function `$name`; expected one of $(join(PIPE_OPS, ", "))")
    end
    run = PipeRun(functions, specification.(collect(inputs)), specification.(collect(outputs)), nothing)
    settings = [name => value for (name, value) in options if !(value isa Function)]
    return execute_run(run, schedule, comm, settings, mean_loss)
end

pipe_run(body::Function, schedule::Schedule, comm::Comm; options...) =
    pipe_run(schedule, comm; options..., NamedTuple{PIPE_OPS}(ntuple(_ -> body, length(PIPE_OPS)))...)

specification((type, dimensions)::Pair) = (type, Tuple(dimensions))
specification(array::AbstractArray) = (eltype(array), size(array))

function execute_run(run, schedule, comm, settings, wants_mean)
    reap()
    given, texts = options_of(Raw.dsc_pipe_run_options_t, Raw.dsc_pipe_run_options_init, "pipe_run", settings)
    inputs, outputs = described(run.inputs), described(run.outputs)
    given[] = changed(given[]; inputs = list_or_null(inputs), n_inputs = length(run.inputs),
        outputs = list_or_null(outputs), n_outputs = length(run.outputs))
    table, mean = Ref(callbacks(run)), Ref(NaN)
    place = wants_mean ? pointer_to(mean) : Ptr{Float64}(C_NULL)
    # Ctrl-C must not throw where a function of Julia begins or ends, because the exception would pass through the library.
    code = disable_sigint() do
        GC.@preserve run schedule comm inputs outputs given texts table mean outside_gc(Raw.dsc_pipe_run,
            schedule_handle(schedule), comm.handle, pointer_to(table), pointer_to(given), place)
    end
    run.failure === nothing || throw(run.failure)
    code < 0 && throw_last(code)
    return wants_mean ? mean[] : nothing
end

described(shapes) = describe(shapes, fill(C_NULL, length(shapes)), fill("", length(shapes)))
list_or_null(tensors) = isempty(tensors.list) ? Ptr{Raw.dsc_tensor_t}(C_NULL) : pointer(tensors.list)

"Called by the library, which runs while this thread does not take part in collections."
function enter_julia(context::Ptr{Cvoid}, call::Ptr{Raw.dsc_pipe_call_t})
    state = ccall(:jl_gc_unsafe_enter, Int8, ())
    code = answer(context, call)
    ccall(:jl_gc_unsafe_leave, Cvoid, (Int8,), state)
    return code
end

"The table of callbacks: the same C function for every op that has a function of Julia."
function callbacks(run)
    entry = @cfunction(enter_julia, Int32, (Ptr{Cvoid}, Ptr{Raw.dsc_pipe_call_t}))
    set = NamedTuple{PIPE_OPS}(map(op -> haskey(run.functions, op) ? entry : C_NULL, PIPE_OPS))
    return changed(defaults(Raw.dsc_pipe_callbacks_t, Raw.dsc_pipe_callbacks_init);
        context = pointer_from_objref(run), set...)
end

"Calls the function for an instruction. No exception may pass through the library, so it is kept for `execute_run`."
@noinline function answer(context, call)::Int32
    run = unsafe_pointer_to_objref(context)::PipeRun
    try
        reenable_sigint(() -> compute_instruction(run, call))
        return Int32(0)
    catch error
        run.failure = error
        write_reason(unsafe_load(call), error)
        return Int32(1)
    end
end

function compute_instruction(run, address)
    raw = unsafe_load(address)
    instruction = Instruction(unsafe_load(raw.instruction))
    call = PipeCall(instruction, arrays(raw.inputs, raw.input_tensors, run.inputs),
        arrays(raw.outputs, raw.output_tensors, run.outputs), arrays(raw.output_grads, raw.output_tensors, run.outputs),
        arrays(raw.input_grads, raw.input_tensors, run.inputs), raw.loss != C_NULL, address)
    result = run.functions[instruction.op](call)
    call.is_last || return
    result isa Real || error("forward of the last part returned $(repr(result)); expected the loss, a number")
    unsafe_store!(raw.loss, Float64(result))
    return
end

"Arrays over the memory of a list of tensors, in the shapes of this micro-batch."
function arrays(places, tensors, specifications)
    places == C_NULL && return Any[]
    return Any[array_at(unsafe_load(places, i), unsafe_load(tensors, i), specifications[i]...) for i in eachindex(specifications)]
end

function array_at(place, tensor, type, dimensions)
    sizes = ntuple(i -> Int(unsafe_load(tensor.shape, length(dimensions) + 1 - i)), length(dimensions))
    place == C_NULL && return prod(sizes) == 0 ? Array{type}(undef, sizes) : nothing
    return unsafe_wrap(Array, Ptr{type}(place), sizes)
end

"Writes the text of an exception for the other ranks, cut at a whole character."
function write_reason(raw, error)
    raw.error_capacity == 0 && return
    text = try sprint(showerror, error) catch; string(typeof(error)) end
    room = Int(raw.error_capacity) - 1
    sizeof(text) > room && (text = text[1:prevind(text, thisind(text, room + 1))])
    GC.@preserve text unsafe_copyto!(raw.error, pointer(text), sizeof(text))
    unsafe_store!(raw.error, 0x00, sizeof(text) + 1)
    return
end

"""
    resize_output!(call, i, dimensions...) -> Array

With `variable_shapes = 1`: sets the size of output i of this micro-batch in `forward`, and returns the smaller array.
"""
function resize_output!(call::PipeCall, i::Integer, dimensions::Integer...)
    shapes = unsafe_load(call.address).output_shapes
    shapes == C_NULL && invalid("resize_output!: this output has a fixed size; expected forward in a run with variable_shapes = 1")
    1 <= i <= length(call.outputs) || invalid("resize_output!: i is $i; expected an output from 1 to $(length(call.outputs))")
    whole = call.outputs[i]
    length(dimensions) == ndims(whole) && prod(dimensions) <= length(whole) || invalid(
        "resize_output!: the size is $dimensions; expected $(ndims(whole)) dimensions and at most $(length(whole)) elements")
    sizes = unsafe_load(shapes, i)
    foreach(d -> unsafe_store!(sizes, dimensions[d], ndims(whole) + 1 - d), 1:ndims(whole))
    return unsafe_wrap(Array, pointer(whole), dimensions)
end
