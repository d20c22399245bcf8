# Messages of the library have its names for functions, arguments and numbers. Exceptions have the names of this package.

# Functions whose name here is not the C name without its prefix, perhaps with an exclamation mark.
const FUNCTION_WORDS = Dict(
    "dsc_all_gather" => "allgather!",
    "dsc_all_gather_v" => "allgatherv!",
    "dsc_all_reduce" => "allreduce!",
    "dsc_all_to_all" => "alltoall!",
    "dsc_all_to_all_v" => "alltoallv!",
    "dsc_broadcast" => "bcast!",
    "dsc_bucket_plan" => "plan_buckets",
    "dsc_bucket_reducer_close" => "free",
    "dsc_bucket_reducer_create" => "Reducer",
    "dsc_bucket_reducer_sparse" => "sparse_grad",
    "dsc_comm_create_group" => "group",
    "dsc_comm_destroy" => "free",
    "dsc_comm_size" => "size",
    "dsc_init_distributed" => "init",
    "dsc_join_create" => "join_uneven",
    "dsc_join_finish" => "join_uneven",
    "dsc_log_read" => "read_log",
    "dsc_mem_register" => "register",
    "dsc_mem_unregister" => "free",
    "dsc_mesh_axis_size" => "size",
    "dsc_mesh_comm" => "group",
    "dsc_mesh_create" => "Mesh",
    "dsc_mesh_create_experts" => "experts",
    "dsc_mesh_filter" => "ranks",
    "dsc_mesh_group" => "ranks",
    "dsc_mesh_size" => "length",
    "dsc_op_create_premul" => "premul",
    "dsc_pipe_op_name" => "op_name",
    "dsc_pipe_schedule_create" => "Schedule",
    "dsc_pipe_schedule_create_custom" => "Schedule",
    "dsc_pipe_schedule_next" => "iterate",
    "dsc_pipe_schedule_reset" => "iterate",
    "dsc_reduce_scatter_v" => "reduce_scatterv!",
    "dsc_sampler_indices" => "shard_indices",
    "dsc_sharded_close" => "free",
    "dsc_sharded_create" => "Sharded",
    "dsc_sharded_locations" => "Sharded",
    "dsc_sharded_reshard" => "unit",
    "dsc_sharded_shards" => "Sharded",
    "dsc_sharded_unshard" => "unit",
    "dsc_sharded_wait" => "unit",
    "dsc_store_append" => "append!",
    "dsc_store_check" => "haskey",
    "dsc_store_count" => "length",
    "dsc_store_delete" => "delete!",
    "dsc_store_get" => "fetch",
    "dsc_store_open" => "Store",
    "dsc_store_set" => "setindex!",
    "dsc_store_wait" => "wait",
    "dsc_tensor_map_backward" => "tensor_map",
    "dsc_tensor_map_forward" => "tensor_map",
    "dsc_work_wait" => "wait",
)

const FUNCTION_PREFIX = r"^dsc_(comm_|bucket_reducer_|mesh_|store_|pipe_schedule_|sharded_)?"

"Returns the name of a C function in this package. What only the raw layer has keeps its C name."
function function_word(c_name)
    haskey(FUNCTION_WORDS, c_name) && return FUNCTION_WORDS[c_name]
    name = replace(c_name, FUNCTION_PREFIX => "")
    for own in (name * "!", name)
        is_own_function(Symbol(own)) && return own
    end
    return "Raw." * c_name
end

function is_own_function(name)
    isdefined(LibDSC, name) || return false
    found = getfield(LibDSC, name)
    return found isa Function && parentmodule(found) === LibDSC
end

# Codes whose messages are rewritten. Other messages may contain a text of the program.
const REWRITTEN = (Raw.DSC_ERR_INVALID_ARG, Raw.DSC_ERR_STATE, Raw.DSC_ERR_UNSUPPORTED, Raw.DSC_ERR_CONFIG,
    Raw.DSC_ERR_NO_BACKEND)

# A number of an option that is a symbol here, and what was expected or what another rank has.
const CHOICE = Regex("\\b(" * join(keys(ENUMERATIONS), '|') *
    ") is -?\\d+( on rank 0 and |, expected )\\d+( \\(\\w+\\)((, | or )\\d+ \\(\\w+\\))*)?")

"Rewrites \"average is 9, expected 1 (pre) or 2 (post)\" as \"average is 9, expected :pre or :post\"."
function choice_words(text)
    prefix = ENUMERATIONS[Symbol(match(r"^\w+", text).match)]
    text = replace(text, r"\d+ \((\w+)\)" => s":\1")
    return replace(text, r"(?<=\bis |\band |\bexpected )-?\d+" => number -> symbol_text(prefix, parse(Int, number)))
end

"The symbol of an enumerator. A number without a name is not changed."
function symbol_text(prefix, number)
    for name in names(Raw; all = true)
        startswith(string(name), prefix) && getfield(Raw, name) == number && return ":" * lowercase(string(name)[length(prefix) + 1:end])
    end
    return string(number)
end

"The library counts from 0."
from_one(text) = replace(text, r"\d+" => number -> string(parse(Int, number) + 1))

# Replacements in messages, one after another.
const PHRASES = (
    r"dsc_init_options_t" => "init()",
    r"\bcosts->n is (\d+)" => s"the longest list of costs has \1 values",
    r"\b(\w+->)+" => "",
    r"\bdsc_\w+(?=\(\))" => function_word,
    r"\bunit_starts\b" => "units",
    r"\bNULL\b" => "nothing",
    r"\bn_(\w+) is (\d+)" => s"\1 has \2 entries",
    r"\b(\w*timeout)_ms is (-?\d+)" => s"\1 is \2 ms",
    r"\b(\w*timeout)_ms: " => s"\1 in ms: ",
    r"\b(\w*timeout)_ms\b" => s"\1",
    CHOICE => choice_words,
    r"(?<!')\b\w+\[\d+\]" => from_one,
    r"\(index \d+\)|\bparameter \d+\b" => from_one,
    r"\bexpected 0 to 0\b" => "expected 0, the only one",
)

"Returns a message of the library with the names of this package."
function in_julia(code, message)
    message = replace(message, r"^dsc_\w+(?=: )" => function_word)
    code == Raw.DSC_ERR_BAD_HANDLE &&
        return replace(message, "the handle is NULL" => "the object was closed, or its world was finalized")
    return code in REWRITTEN ? foldl(replace, PHRASES; init = message) : message
end
