"""The rules of dsc/types.h for names and for the order of arguments. Each returns a list of violations."""

import re

# DSC_OK and DSC_ERR_TIMEOUT are what the C libraries of this field write; DSC_RESULT_TIMEOUT is not.
FREE_ENUMS = {"dsc_result"}
# The bits of dsc_sources_t are named one by one.
MORE_ARGUMENTS = {
    "dsc_shard_copies": "two plans of the same parameters, each with its number of shards",
}
MOST_ARGUMENTS = 10
# The needed size is the product of the two numbers that follow the capacity.
PRODUCTS = {"dsc_mesh_groups", "dsc_mesh_levels", "dsc_mesh_members"}
# Read on the root and written elsewhere, so it is not only the needed size.
BOTH_WAYS = {"dsc_broadcast_shape"}
TAILS = ("stream", "work")


def misnamed(api):
    """Lists every name and every order of arguments that breaks a rule."""
    rules = (enumerator_prefixes, shared_prefixes, options_names, info_names, json_names, needed_sizes, counts)
    rules += (argument_order, root_position, argument_numbers, error_rooms)
    return [f"  {problem}" for rule in rules for problem in rule(api)]


def prefix_of(enum):
    return enum["name"].upper() + "_"


def enumerator_prefixes(api):
    """Enumerators begin with the name of their enumeration."""
    for enum in api["enums"]:
        if enum["name"] in FREE_ENUMS:
            continue
        for value in enum["values"]:
            if not value["name"].startswith(prefix_of(enum)):
                yield f"{value['name']}: expected the prefix {prefix_of(enum)}, that of {enum['name']}"


def shared_prefixes(api):
    """No enumerator looks like one of another enumeration: the longest prefix that fits is its own."""
    prefixes = {prefix_of(enum): enum["name"] for enum in api["enums"] if enum["name"] not in FREE_ENUMS}
    for enum in api["enums"]:
        for value in enum["values"]:
            fitting = [prefix for prefix in prefixes if value["name"].startswith(prefix)]
            if fitting and prefixes[max(fitting, key=len)] != enum["name"]:
                yield f"{value['name']} of {enum['name']} looks like a value of {prefixes[max(fitting, key=len)]}"


def options_names(api):
    """dsc_X_options_t is taken by a function that begins or ends with X."""
    for struct in api["structs"]:
        if not struct["name"].endswith("_options_t"):
            continue
        subject = struct["name"].removeprefix("dsc_").removesuffix("_options_t")
        takers = [f["name"] for f in api["functions"] if takes(f, struct["name"]) and not f["name"].endswith("_init")]
        if not any(named_after(taker, subject) for taker in takers):
            yield f"{struct['name']}: expected a name after a call that takes it: {', '.join(takers) or 'none'}"


def takes(function, struct):
    return any(a["type"].removeprefix("const ") == struct + "*" for a in function["arguments"])


def named_after(function, subject):
    """The words of the subject are words of the function's name, in the same order."""
    words = iter(function.removeprefix("dsc_").split("_"))
    return all(word in words for word in subject.split("_"))


def info_names(api):
    """A function fills one dsc_X_info_t, and nothing else, exactly if its name ends with _info."""
    for function in api["functions"]:
        out = [a["type"] for a in function["arguments"] if a["type"].endswith("_info_t*")]
        if bool(out) != function["name"].endswith("_info"):
            yield f"{function['name']}: a name ends with _info exactly if the call fills in a dsc_..._info_t"


def json_names(api):
    """A text that is a JSON object comes from a function that ends with _json; stats are structs."""
    for function in api["functions"]:
        text = any(a["name"] == "text" and a["direction"] == "out" for a in function["arguments"])
        name = function["name"]
        if name.endswith("_json") and not text:
            yield f"{name}: expected a text, as the name ends with _json"
        if text and re.search(r"_(stats|report)$", name):
            yield f"{name}: a text is JSON (_json) or prose (_summary); stats are structs, a report is an object"
        if name.endswith("_stats") and not any(a["type"].endswith("_stats_t*") for a in function["arguments"]):
            yield f"{name}: expected a list of dsc_..._stats_t"


def needed_sizes(api):
    """What follows a capacity is the needed size, and is called so."""
    for function in api["functions"]:
        names = [a["name"] for a in function["arguments"]]
        for name, after in zip(names, names[1:]):
            if name == "capacity" and after != "needed" and function["name"] not in PRODUCTS | BOTH_WAYS:
                yield f"{function['name']}: {after} follows capacity; expected needed"


def counts(api):
    """Numbers of entries are size_t: n, n_X."""
    places = [(f["name"], a["name"], a["type"]) for f in api["functions"] for a in f["arguments"]]
    places += [(s["name"], f["name"], f["type"]) for s in api["structs"] for f in s["fields"]]
    for owner, name, type_ in places:
        if re.match(r"n(_|$)", name) and type_.rstrip("*") != "size_t":
            yield f"{owner}: {name} is {type_}, expected size_t"


def argument_order(api):
    """Inputs, outputs, stream, work. Where a call moves data, recv follows send, as in NCCL.

    The size or the type of an output follows it: struct_size, n_X and X_dtype.
    """
    for function in api["functions"]:
        arguments = function["arguments"]
        tail = [a["name"] for a in arguments if a["name"] in TAILS and a["type"] in ("void*", "dsc_work_t**")]
        if tail and [a["name"] for a in arguments][-len(tail) :] != tail:
            yield f"{function['name']}: expected {' and '.join(tail)} at the end"
        rest = [a for a in arguments if a["name"] not in (*TAILS, "recv", "capacity", "root", "struct_size")]
        seen = ""
        for argument in rest:
            if argument["direction"] == "out":
                seen = argument["name"]
            elif argument["direction"] == "in" and seen and not describes(argument["name"], seen):
                yield f"{function['name']}: the input {argument['name']} follows the output {seen}"


def describes(name, output):
    return name in (f"n_{output}", f"{output}_dtype") or name.endswith("_capacity")


def root_position(api):
    """The root follows the data and its type."""
    for function in api["functions"]:
        names = [a["name"] for a in function["arguments"]]
        if "root" in names:
            data = [i for i, name in enumerate(names) if name in ("send", "recv", "count", "dtype", "tensors", "shape")]
            late = [names[i] for i in data if i > names.index("root")]
            if late:
                yield f"{function['name']}: root stands before {', '.join(late)}; expected after them"


def argument_numbers(api):
    """A call with more arguments takes a struct of options."""
    for function in api["functions"]:
        n = len(function["arguments"])
        if n > MOST_ARGUMENTS and function["name"] not in MORE_ARGUMENTS:
            yield f"{function['name']}: {n} arguments, expected at most {MOST_ARGUMENTS}, or options"


def error_rooms(api):
    """Where a callback may write why it failed: error and error_capacity."""
    for struct in api["structs"]:
        fields = {f["name"]: f["type"] for f in struct["fields"]}
        rooms = [name for name, type_ in fields.items() if type_ == "char*"]
        if rooms and (rooms != ["error"] or "error_capacity" not in fields):
            yield f"{struct['name']}: the room for a text is {', '.join(rooms)}; expected error and error_capacity"
