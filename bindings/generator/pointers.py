"""Says what each argument and field is: its role, length, element type, nullability and lifetime.

A binding needs these facts for every pointer, and C's types do not have them: `size_t*` may be one number or a list.
They are derived from names and types where a rule of dsc/types.h allows it. Everywhere else the comment must begin
with a mark such as "[n_parts + 1]", or the check fails.
"""

import re

from .comment import split_mark

# Outputs with these names are single numbers. Any other output, above all one with a plural, needs a mark or a capacity.
SINGLE = set(
    "agreed available backend bytes completed count deleted descriptor device dtype group group_rank group_size global_rank has_progress_thread id "
    "initialized is_counted is_forward last_rank layer_seed length level local_rank local_size major makespan mean_loss member micro_batch minor "
    "n_buckets n_groups n_keys n_rows n_ranks n_units ndim needed norm op patch peer port present rank region_seed shard size source stage start "
    "sum text_level timeout_ms world_size".split()
)
# Structs of these kinds are passed one at a time. Pointers to others may be lists, so they need a mark.
SINGLE_STRUCT = re.compile(r"_(options|info|callbacks|costs|result|call|record|range|instruction|bucket)_t$")
# Names in lengths that are neither arguments nor fields.
TERMS = {
    "size": "the number of ranks of the communicator",
    "rank": "this rank in the communicator",
    "n_params": "the number of parameters: those of the call, or those with which the object was created",
    "param_count": "the number of elements of the parameter with this index",
    "n_axes": "the number of axes of the mesh",
    "row_count": "the number of elements of a row of the parameter: the product of its sizes but the first",
    "columns": "the number of this rank's columns, see dsc_tensor_map_part()",
    "input_count": "the number of elements of the input, which the options describe; of a pass, that of its forward step",
    "output_count": "the number of elements of the output, likewise",
}
ELEMENTS = {
    "dtype": "the type that the argument or field dtype names",
    "grad_dtype": "the type that the field grad_dtype, or the argument grad_dtype of dsc_ring_begin(), names",
    "block_dtype": "the type that the argument dtype of dsc_ring_begin() names",
    "sum_dtype": "f64 if dtype is DSC_DTYPE_F64, otherwise f32",
    "param_dtype": "the type of the parameter",
    "view_dtype": "the type of the parameter, or grad_dtype of the options if it is set",
    "byte": "bytes",
}
# The numbers that tell how many entries an output needs, where they are not the argument "needed".
NEEDED = {
    "dsc_mesh_groups": {"ranks": "n_groups * group_size"},
    "dsc_mesh_levels": {"ranks": "n_groups * group_size"},
    "dsc_mesh_members": {"ranks": "n_groups * group_size"},
    "dsc_mesh_plan": {"names": "n_groups", "starts": "n_groups + 1", "ranks": "n_ranks"},
    "dsc_broadcast_shape": {"shape": "ndim"},
}
# What the entries of a list of pointers point to: a tensor that a list describes, or as many numbers as its field says.
ENTRIES = {
    "dsc_pipe_call_t": {
        "inputs": "input_tensors",
        "input_grads": "input_tensors",
        "outputs": "output_tensors",
        "output_grads": "output_tensors",
        "output_shapes": "output_tensors.ndim",
    },
}
UNITS = {"_ms": "milliseconds", "_ns": "nanoseconds", "bytes": "bytes"}
NUMBER = r"-?[\d,]+(?:\^\d+)?"
RANGE = re.compile(rf"(?:^|[;,:] )({NUMBER} (?:or more|to (?:{NUMBER}|\w+)(?: - 1)?)|above {NUMBER}, at most {NUMBER}|finite(?: and {NUMBER} or more)?)")
# The rest of the sentence is what NULL means: "NULL: defaults", "may be NULL with capacity 0", "NULL for host memory".
SENTENCE = r"(?:[^;.]|\.(?=\S))"
MAY_BE_NULL = re.compile(rf"\b[Mm]ay be NULL\b({SENTENCE}*)")
CONDITIONS = "to|if|in|on|for|without|does|removes|with|only"
NULL = re.compile(rf"{MAY_BE_NULL.pattern}|(?<!not )\bNULL(?: \([^)]*\))?(?: or [^:]+)?(?:: ({SENTENCE}+)| ((?:{CONDITIONS})\b{SENTENCE}*))")
# "context must stay valid until X", "the memory is valid until X", "view, valid until X".
STAYS = re.compile(r"([\w, ]*?)(?:\bmust (?:also )?stay (?:valid|unchanged|untouched)|\bvalid)(?: and [a-z]+)? ((?:until|while) [^;.]+)")


def describe(api):
    """Adds the facts to all arguments and fields. Returns the places where a comment does not say them."""
    types = Types(api)
    problems = []
    for entry in api["functions"] + api["callbacks"] + api["structs"]:
        problems += Owner(entry, entry.get("arguments") or entry.get("fields", []), types).describe()
    return problems


def base(c_type):
    """Returns a type without its pointers and const."""
    return re.sub(r"\bconst\b|[* ]", "", c_type)


def concerns(names, part):
    """Whether a sentence about the lifetime of some names means this part."""
    return re.search(rf"\b{part['name']}\b", names) or part["role"] == "data" and "buffers" in names


class Types:
    """The kinds of all named types."""

    def __init__(self, api):
        self.handles = {entry["name"] for entry in api["handles"]}
        self.structs = {entry["name"]: entry for entry in api["structs"]}
        self.callbacks = {entry["name"] for entry in api["callbacks"]}
        self.functions = api["functions"]

    def takers(self, struct):
        """Returns the functions that take a struct. A length in its fields may name their arguments."""
        return [f for f in self.functions if any(a["type"] == f"const {struct}*" for a in f["arguments"])]


class Owner:
    """A function, callback or struct, whose parts are described."""

    def __init__(self, entry, parts, types):
        self.entry, self.parts, self.types = entry, parts, types
        self.names = [part["name"] for part in parts]

    def describe(self):
        """Adds the facts of all parts. Returns what is missing or wrong in their comments."""
        problems = [problem for part in self.parts for problem in self.describe_part(part)]
        # A closure that a binding passes as a callback must live as long as the context that goes with it.
        valid = next((part["valid"] for part in self.parts if part["role"] == "context" and "valid" in part), None)
        for part in self.parts:
            if part["role"] == "callback" and valid:
                part["valid"] = valid
        return problems

    def describe_part(self, part):
        """Adds the facts of one argument or field. Yields what is missing or wrong in its comment."""
        mark, part["brief"] = split_mark(part["brief"])
        element = base(part["type"])
        part["role"] = self.role(part, element, mark)
        if "*" in part["type"] or part["role"] == "callback":
            self.add_direction(part, mark)
            self.add_length(part, element, mark)
            self.add_needed(part)
            self.add_null(part)
            self.add_lifetime(part)
        add_number(part)
        yield from self.problems(part, element, mark)

    def role(self, part, element, mark):
        """Returns what a part is, or "" if neither its type nor a mark says it."""
        name, c_type = part["name"], part["type"]
        depth = c_type.count("*")
        if element in self.types.callbacks:
            return "callback"
        if depth == 0:
            return "text" if c_type.startswith("char[") else "numbers" if "[" in c_type else "number"
        if name in ("context", "stream"):
            return name
        if mark.get("length") == "address":
            return "address"
        if element in self.types.handles and (depth == 1 or mark.get("length") == "existing"):
            return "handle"
        if element in self.types.handles:
            return "list" if c_type.endswith("* const*") else "new_handle"
        if depth == 2 and not c_type.endswith("* const*"):
            return "texts" if element == "char" and mark else "view" if mark else ""
        return self.list_role(part, element, mark)

    def list_role(self, part, element, mark):
        """Returns the role of a pointer to values: one of them, or a list whose length is known."""
        name, c_type = part["name"], part["type"]
        has_length = bool(mark) or self.capacity(name) is not None
        if element == "char" and not has_length:
            return "text" if c_type == "const char*" else ""
        if element == "char":
            return "texts" if "**" in c_type or "* const*" in c_type else "text"
        if element == "void":
            return ("data" if c_type.count("*") == 1 else "list") if has_length else ""
        if has_length and mark.get("length") != "1":
            return "list"
        if element in self.types.structs:
            one = mark or SINGLE_STRUCT.search(element) or self.entry["name"].endswith("_init")
            return "struct" if one else ""
        return "number" if mark or name in SINGLE and not c_type.startswith("const") else ""

    def capacity(self, name):
        """Returns the number that follows a pointer as its length: a capacity, its number of entries or its bytes."""
        after = self.names[self.names.index(name) + 1 :][:1]
        fitting = ["capacity", "error_capacity", "n", f"n_{name}"]
        if self.parts[self.names.index(name)]["type"] in ("const void*", "const char*", "void*"):
            fitting += ["bytes", f"{name}_bytes"]
        return after[0] if after and after[0] in fitting else None

    def add_direction(self, part, mark):
        if not part.get("direction"):
            read_only = part["type"].startswith("const ") or part["role"] in ("handle", "context", "stream", "callback")
            part["direction"] = mark.get("direction") or ("in" if read_only else "")

    def add_length(self, part, element, mark):
        if part["role"] not in ("list", "data", "texts", "view", "text"):
            return
        length = mark.get("length") or self.capacity(part["name"])
        if length:
            part["length"] = length
        if part["role"] in ("data", "view") and element == "void":
            has_dtype = "dtype" in self.names or "dtype" in mark.get("element", "")
            part["element"] = mark.get("element") or ("dtype" if has_dtype else "byte")
        elif part["role"] == "texts":
            part["element"] = "text"
        elif length:
            # Entries that are pointers keep their star: "int64_t* const*" is a list of int64_t*.
            part["element"] = element + "*" * (part["type"].count("*") - 1) if part["role"] == "list" else element

    def add_needed(self, part):
        """Adds "needed", what a call says about the room that an output needs, and "entry", what entries point to."""
        needed = NEEDED.get(self.entry["name"], {}).get(part["name"]) or ("needed" if "needed" in self.names else None)
        if needed and part["direction"] != "in" and "capacity" in part.get("length", ""):
            part["needed"] = needed
        if entry := ENTRIES.get(self.entry["name"], {}).get(part["name"]):
            part["entry"] = entry

    def add_null(self, part):
        """Adds "null", the meaning of NULL, to a pointer that may be NULL."""
        # In the comment of an address that is written, "NULL on failure" is about the value that is written there.
        is_result = part["role"] in ("new_handle", "view", "address", "handle") and part["direction"] == "out"
        found = (MAY_BE_NULL if is_result else NULL).search(part["brief"])
        if found:
            means = next((text for text in found.groups() if text), "")
            part["null"] = means.strip(" :") or "nothing is written"
        elif part["role"] in ("context", "stream"):
            part["null"] = "passed on as it is" if part["role"] == "context" else "the default stream"

    def add_lifetime(self, part):
        """Adds "valid": until when the memory must stay as it is, if that is longer than the call."""
        in_brief = [until for _, until in STAYS.findall(part["brief"])]
        in_ownership = [until for names, until in STAYS.findall(self.entry.get("ownership") or "") if concerns(names, part)]
        in_work = ["until completion"] if part["role"] == "data" and "work" in self.names else []
        for until in (in_brief + in_ownership + in_work)[:1]:
            part["valid"] = until

    def problems(self, part, element, mark):
        where = f"  {self.entry['name']}: {part['name']}"
        if not part["role"]:
            yield f"{where} is {part['type']}; its comment must begin with its length, such as [n], or with [1] for one value"
        if "*" in part["type"] and not part["direction"]:
            yield f"{where} is {part['type']}; its mark must say who writes, such as [out n] or [inout n]"
        if part.get("direction") == "out" and self.reads_size(element):
            yield f"{where} is {part['type']}, whose struct_size is read; expected @param[in,out]"
        if part.get("direction") in ("out", "inout") and re.fullmatch(r"const \w+\*", part["type"]):
            yield f"{where} is {part['type']}, which cannot be written; expected @param[in]"
        if part["role"] == "view" and "valid" not in part:
            yield f"{where} is memory of the library; expected a sentence such as '{part['name']} is valid until ...' after 'Ownership:'"
        if "length" in part:
            yield from (f"{where} has the length '{part['length']}', but {problem}" for problem in self.unknown(part["length"]))
        if re.search(r"(?<!error_)capacity", part.get("length", "")) and "needed" not in part:
            yield f"{where} has a capacity, but nothing says how much is needed; expected the argument needed, or an entry in NEEDED"
        if part["role"] == "list" and part["element"].endswith("*") and element not in self.types.handles and "entry" not in part:
            yield f"{where} is a list of {part['element']}, but nothing says what these point to; expected an entry in ENTRIES"
        if mark.get("element") and mark["element"] not in ELEMENTS:
            yield f"{where} has elements of {mark['element']}; expected one of {', '.join(ELEMENTS)}"

    def reads_size(self, element):
        """Whether the library reads the struct_size of an output. Only the _init functions get it as an argument."""
        struct = self.types.structs.get(element)
        return struct and struct["fields"][0]["name"] == "struct_size" and not self.entry["name"].endswith("_init")

    def unknown(self, length):
        """Yields the names in a length that nothing defines."""
        known = set(self.names) | set(TERMS)
        for taker in self.types.takers(self.entry["name"]):
            known |= {argument["name"] for argument in taker["arguments"]}
        for name in re.findall(r"[a-z_]+(?:\.[a-z_]+)?", re.sub(r"\b(?:sum|max)\(", "(", length)):
            if name not in known and not self.is_field(name):
                yield f"{name} is neither an argument, a field, nor one of {', '.join(TERMS)}"

    def is_field(self, name):
        """Whether a name such as options.n or plan.rows is a field of an argument, or of the info of a handle."""
        owner, _, field = name.partition(".")
        for part in self.parts:
            if part["name"] == owner:
                element = base(part["type"])
                struct = self.types.structs.get(element) or self.types.structs.get(element.removesuffix("_t") + "_info_t")
                return struct is not None and field in [each["name"] for each in struct["fields"]]
        return False


def add_number(part):
    """Adds the unit and the range of a number, where its name and its comment say them."""
    if part["role"] not in ("number", "list"):
        return
    for ending, unit in UNITS.items():
        if part["name"].endswith(ending):
            part["unit"] = unit
    found = RANGE.search(part["brief"])
    if found:
        part["range"] = found[1]
