"""Checks the rules of dsc/types.h for names and for the order of arguments. Each check returns a list of violations."""

import keyword
import re

from . import pointers

# Enumerators may be DSC_OK and DSC_ERR_TIMEOUT, as in similar C libraries, instead of DSC_RESULT_TIMEOUT.
FREE_ENUMS = {"dsc_result"}
MOST_ARGUMENTS = 10
MORE_ARGUMENTS = {"dsc_shard_copies": "two plans of the same parameters, each with its number of shards"}
TAILS = ("stream", "work")
# A struct dsc_X_options_t may be the argument of a function dsc_X_VERB with one of these verbs.
VERBS = ("create", "open", "split", "forward")
SHARED_OPTIONS = {
    "dsc_clip_options_t": "dsc_bucket_reducer_clip and dsc_sharded_clip take them",
    "dsc_init_options_t": "dsc_init_distributed has PyTorch's name",
    "dsc_sequence_heads_options_t": "dsc_sequence_to_heads and dsc_heads_to_sequence take them",
}
STEPS = {"dsc_pipe_schedule_next": "an instruction is not a description of the schedule"}
# The allowed first words of function names, in addition to the names of handles.
SUBJECTS = ("bucket", "dtype", "log", "mem", "moe", "op", "pipe", "rng", "sampler", "sequence", "shard", "tensor", "tied", "trace")
# Headers of operations. Their functions have the usual names of the operations.
OPERATIONS = ("collectives.h", "coalesced.h", "broadcast_data.h", "context_parallel.h", "cross_entropy.h", "rms_norm.h")
# Words that must not be names of fields or arguments, because bindings use these names unchanged.
RESERVED_WORDS = set(keyword.kwlist) | set(
    "abstract baremodule become begin box catch const crate do dyn else elseif end enum export extern false final fn function gen impl let local loop macro "
    "match mod module move mut override priv pub quote ref self static struct super trait true type typeof unsafe unsized use using virtual where Self".split()
)
# Beginnings of allowed names that do not name an object. Most of these functions act on the whole process.
FREE = ("world", "finalize", "is_initialized", "init_", "launch_json", "engines_json", "version", "feature", "result_name", "last_error_", "clip_options_init")


def misnamed(api):
    """Returns all violations of the rules for names and for the order of arguments."""
    rules = (enumerator_prefixes, shared_prefixes, options_names, struct_results, json_names, needed_sizes, counts)
    rules += (argument_order, root_position, argument_numbers, error_rooms, reserved_words, subjects)
    return [f"  {problem}" for rule in rules for problem in rule(api)]


def prefix_of(enum):
    return enum["name"].upper() + "_"


def enumerator_prefixes(api):
    """Enumerators must begin with the name of their enumeration."""
    for enum in api["enums"]:
        if enum["name"] in FREE_ENUMS:
            continue
        for value in enum["values"]:
            if not value["name"].startswith(prefix_of(enum)):
                yield f"{value['name']}: expected the prefix {prefix_of(enum)}, because it belongs to {enum['name']}"


def shared_prefixes(api):
    """An enumerator must not look like one of another enumeration: its longest matching prefix must be its own."""
    prefixes = {prefix_of(enum): enum["name"] for enum in api["enums"] if enum["name"] not in FREE_ENUMS}
    for enum in api["enums"]:
        for value in enum["values"]:
            fitting = [prefix for prefix in prefixes if value["name"].startswith(prefix)]
            if fitting and prefixes[max(fitting, key=len)] != enum["name"]:
                yield f"{value['name']} of {enum['name']} looks like a value of {prefixes[max(fitting, key=len)]}"


def options_names(api):
    """dsc_X_options_t must be an argument of dsc_X, dsc_X_create or a similar function."""
    for struct in api["structs"]:
        if not struct["name"].endswith("_options_t") or struct["name"] in SHARED_OPTIONS:
            continue
        subject = struct["name"].removesuffix("_options_t")
        takers = [f["name"] for f in api["functions"] if takes(f, struct["name"]) and not f["name"].endswith("_init")]
        if not {subject, *(f"{subject}_{verb}" for verb in VERBS)} & set(takers):
            yield f"{struct['name']}: expected a name derived from a function that takes it: {', '.join(takers) or 'none'}"


def takes(function, struct):
    return any(a["type"].removeprefix("const ") == struct + "*" for a in function["arguments"])


def struct_results(api):
    """A function that fills one struct must end with _info, as the struct does, or have the struct's name."""
    structs = {struct["name"] for struct in api["structs"]}
    for function in api["functions"]:
        out = [a["type"].removesuffix("*") for a in function["arguments"] if a["direction"] != "in"]
        name, fills = function["name"], len(out) == 1 and out[0] in structs
        if not fills or name.endswith("_init") or name in STEPS or takes_capacity(function):
            if name.endswith("_info") and not fills:
                yield f"{name}: a name ends with _info only if the call fills in a dsc_..._info_t"
        elif not (name.endswith("_info") and out[0].endswith("_info_t")) and out[0] != name + "_t":
            yield f"{name} fills in {out[0]}: expected dsc_..._info and dsc_..._info_t, or {name}_t"


def takes_capacity(function):
    return any(a["name"] == "capacity" for a in function["arguments"])


def json_names(api):
    """A function that returns a JSON object must end with _json; stats must be structs."""
    for function in api["functions"]:
        text = any(a["name"] == "text" and a["direction"] == "out" for a in function["arguments"])
        name = function["name"]
        if name.endswith("_json") != (text and "JSON" in function["brief"]):
            yield f"{name}: a name must end with _json if the function returns text that its brief calls JSON, and only then"
        if text and re.search(r"_(stats|report)$", name):
            yield f"{name}: a text is JSON (_json) or prose (_summary); expected one of these endings, because the function returns a text"
        if name.endswith("_stats") and not any(a["type"].endswith("_stats_t*") for a in function["arguments"]):
            yield f"{name}: expected a list of dsc_..._stats_t"


def needed_sizes(api):
    """The argument after a capacity must be the needed size, with that name."""
    for function in api["functions"]:
        names = [a["name"] for a in function["arguments"]] + [""]
        for name, after in zip(names, names[1:]):
            if name.endswith("capacity") and after != "needed" and function["name"] not in pointers.NEEDED:
                yield f"{function['name']}: {after or 'nothing'} comes after {name}; expected needed"


def counts(api):
    """Numbers of entries must have the type size_t and the name n or n_X."""
    places = [(f["name"], a["name"], a["type"]) for f in api["functions"] for a in f["arguments"]]
    places += [(s["name"], f["name"], f["type"]) for s in api["structs"] for f in s["fields"]]
    for owner, name, type_ in places:
        if re.match(r"n(_|$)", name) and type_.rstrip("*") != "size_t":
            yield f"{owner}: {name} is {type_}, expected size_t"


def argument_order(api):
    """The order must be: inputs, outputs, stream, work. If a call moves data, recv follows send, as in NCCL.

    The size or type of an output follows it: struct_size, n_X and X_dtype.
    """
    for function in api["functions"]:
        arguments = function["arguments"]
        tail = [a["name"] for a in arguments if a["name"] in TAILS and a["type"] in ("void*", "dsc_work_t**")]
        wanted = [name for name in TAILS if name in tail]
        if tail and [a["name"] for a in arguments][-len(tail) :] != wanted:
            yield f"{function['name']}: expected {' and '.join(wanted)} at the end"
        names = [a["name"] for a in arguments]
        if {"send", "recv"} <= set(names) and names.index("recv") < names.index("send"):
            yield f"{function['name']}: recv comes before send; expected send first"
        rest = [a for a in arguments if a["name"] not in (*TAILS, "recv", "capacity", "root", "struct_size")]
        seen = ""
        for argument in rest:
            if argument["direction"] == "out":
                seen = argument["name"]
            elif argument["direction"] == "in" and seen and not describes(function, argument["name"], seen):
                yield f"{function['name']}: the input {argument['name']} comes after the output {seen}"


def describes(function, name, output):
    is_capacity = function["name"] in pointers.NEEDED and name.endswith("_capacity")
    return name in (f"n_{output}", f"{output}_dtype") or is_capacity


def root_position(api):
    """The root must be the last input, except for the stream and the size of buffers."""
    for function in api["functions"]:
        names = [a["name"] for a in function["arguments"]]
        if "root" in names:
            behind = function["arguments"][names.index("root") + 1 :]
            late = [a["name"] for a in behind if a["direction"] != "out" and a["name"] not in ("stream", "buffer_bytes")]
            if late:
                yield f"{function['name']}: root comes before {', '.join(late)}; expected root after them"


def argument_numbers(api):
    """A function with many arguments must take a struct of options instead."""
    for function in api["functions"]:
        n = len(function["arguments"])
        if n > MOST_ARGUMENTS and function["name"] not in MORE_ARGUMENTS:
            yield f"{function['name']}: {n} arguments, expected at most {MOST_ARGUMENTS}, or a struct of options"


def error_rooms(api):
    """The buffer in which a callback may describe its failure must be called error, and its size error_capacity."""
    for struct in api["structs"]:
        fields = {f["name"]: f["type"] for f in struct["fields"]}
        rooms = [name for name, type_ in fields.items() if type_ == "char*"]
        if rooms and (rooms != ["error"] or "error_capacity" not in fields):
            yield f"{struct['name']}: the fields for a text are {', '.join(rooms)}; expected error and error_capacity"


def reserved_words(api):
    """No field or argument may be a reserved word in a language that has bindings."""
    for owner in api["structs"] + api["functions"] + api["callbacks"]:
        for name in (part["name"] for part in owner.get("fields") or owner.get("arguments") or ()):
            if name in RESERVED_WORDS:
                yield f"{owner['name']}: {name} is a reserved word of Python, Rust or Julia"


def subjects(api):
    """A name must begin with the object that the call uses, or be the name of an operation."""
    known = [handle["name"].removeprefix("dsc_").removesuffix("_t") + "_" for handle in api["handles"]]
    known += [subject + "_" for subject in SUBJECTS] + list(FREE)
    for function in api["functions"]:
        is_operation = function["header"].removeprefix("dsc/") in OPERATIONS
        if not is_operation and not function["name"].removeprefix("dsc_").startswith(tuple(known)):
            yield f"{function['name']}: expected a name that begins with the object on which the function acts"
