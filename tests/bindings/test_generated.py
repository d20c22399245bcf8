"""The generated files match the headers and what the real compiler makes of the headers."""

import ctypes
import shutil
import subprocess
import sys

import pytest
from compiled import API, measure
from conftest import ROOT

from libdsc import _dtypes, _raw
from libdsc._library import lib

GENERATE = ROOT / "bindings" / "generate.py"
sys.path.insert(0, str(ROOT / "bindings"))  # the generator is a package there


def by_class(entries):
    """Returns (entry, the class in _raw.py) for every struct or enum."""
    from_c = lambda name: "".join(w.capitalize() for w in name.removeprefix("dsc_").removesuffix("_t").split("_"))
    return [(entry, getattr(_raw, from_c(entry["name"]))) for entry in entries]


def test_outputs_are_fresh():
    done = subprocess.run([sys.executable, str(GENERATE), "--check"], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def change(tmp_path, header, old, new):
    """Copies the headers, and changes the text of one."""
    shutil.copytree(ROOT / "capi" / "include", tmp_path / "capi" / "include")
    path = tmp_path / "capi" / "include" / "dsc" / header
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def refused(tmp_path, header, old, new):
    """Returns why the generator refuses the headers after the text of one was changed."""
    change(tmp_path, header, old, new)
    try:
        from generator import parse

        parse.parse(tmp_path, "capi/include/dsc/dsc.h")
    except (ImportError, OSError) as error:
        pytest.skip(f"libclang cannot be used: {error}")
    except ValueError as error:
        return str(error)
    raise AssertionError("the generator accepts the changed headers")


def test_check_finds_a_misplaced_field(tmp_path):
    problems = refused(tmp_path, "tensor.h", "int32_t ndim;", "uint64_t ndim;")
    assert "dsc_tensor_t: ndim comes after dtype; expected the order: pointers, 64 bits, 32 bits, texts" in problems
    assert "dsc_tensor_t: a hole of 4 bytes before byte 48" in problems


@pytest.mark.parametrize(
    "header, old, new, said",
    [
        ("types.h", "DSC_NORM_TWO", "DSC_TWO_NORM", "DSC_TWO_NORM: expected the prefix DSC_NORM_, because it belongs to dsc_norm"),
        ("pipe.h", "DSC_PIPE_OP_FORWARD", "DSC_PIPE_FORWARD", "DSC_PIPE_FORWARD: expected the prefix DSC_PIPE_OP_"),
        (
            "types.h",
            "enum dsc_norm {\n  DSC_NORM_TWO",
            "enum dsc_pipe {\n  DSC_PIPE_OP_TWO",
            "DSC_PIPE_OP_TWO of dsc_pipe looks like a value of dsc_pipe_op",
        ),
        ("expert_parallel.h", "dsc_moe_plan_options", "dsc_moe_options", "dsc_moe_options_t: expected a name derived from a function"),
        ("comm.h", "dsc_comm_nonfinite_info(", "dsc_comm_nonfinite(", "dsc_comm_nonfinite fills in dsc_nonfinite_info_t"),
        ("comm.h", "dsc_comm_size(", "dsc_comm_size_info(", "dsc_comm_size_info: a name ends with _info only if"),
        ("sharded.h", "dsc_sharded_memory_info(", "dsc_sharded_memory(", "dsc_sharded_memory fills in dsc_sharded_memory_info_t"),
        ("trace.h", "dsc_trace_json(", "dsc_trace_text(", "dsc_trace_text: a name must end with _json if"),
        ("rng.h", "dsc_rng_layer_seed(", "dsc_seed_layer(", "dsc_seed_layer: expected a name that begins with the object"),
        ("work.h", "dsc_comm_progress(", "dsc_progress(", "dsc_progress: expected a name that begins with the object"),
        ("version.h", "dsc_engines_json(", "dsc_engines_report(", "dsc_engines_report: a text is JSON (_json) or prose"),
        ("comm.h", "dsc_comm_size(", "dsc_comm_size_json(", "dsc_comm_size_json: a name must end with _json if"),
        ("collectives.h", "void* stream, dsc_work_t** work", "dsc_work_t** work, void* stream", "expected stream and work at the end"),
        (
            "collectives.h",
            "dsc_all_reduce(dsc_comm_t* comm, const void* send, void* recv",
            "dsc_all_reduce(dsc_comm_t* comm, void* recv, const void* send",
            "dsc_all_reduce: recv comes before send",
        ),
        ("op.h", "void* result;", "void* end;", "dsc_op_call_t: end is a reserved word of Python, Rust or Julia"),
        ("op.h", "uint64_t id,", "uint64_t from,", "dsc_op_create_user: from is a reserved word"),
        ("op.h", "uint64_t id,", "size_t capacity, uint64_t id,", "dsc_op_create_user: id comes after capacity; expected needed"),
        ("comm.h", "dsc_comm_size(", "dsc_comm_size_stats(", "dsc_comm_size_stats: expected a list of dsc_..._stats_t"),
        ("recovery.h", "needed", "n_ranks", "dsc_comm_missing: n_ranks comes after capacity; expected needed"),
        ("mesh.h", "size_t n_axes", "int32_t n_axes", "dsc_mesh_create: n_axes is int32_t, expected size_t"),
        ("tied.h", "size_t n_stages", "uint64_t n_stages", "dsc_tied_key_t: n_stages is uint64_t, expected size_t"),
        (
            "work.h",
            "int32_t timeout_ms, void* stream",
            "void* stream, int32_t timeout_ms",
            "dsc_work_wait: expected stream at the end",
        ),
        (
            "rng.h",
            "int32_t expert_rank, int32_t expert_tensor_rank,\n                                         uint64_t* region_seed",
            "int32_t expert_rank, uint64_t* region_seed,\n                                         int32_t expert_tensor_rank",
            "dsc_rng_region_seed: the input expert_tensor_rank comes after the output region_seed",
        ),
        (
            "collectives.h",
            "dsc_dtype_t dtype, int32_t root",
            "int32_t root, dsc_dtype_t dtype",
            "dsc_broadcast: root comes before dtype; expected root after them",
        ),
        (
            "tensor_map.h",
            "void* recv, dsc_dtype_t dtype, void* stream",
            "void* recv, size_t a, size_t b, size_t c, size_t d, dsc_dtype_t dtype, void* stream",
            "dsc_tensor_map_forward: 11 arguments, expected at most 10, or a struct of options",
        ),
        ("pipe_run.h", "char* error;", "char* problem;", "dsc_pipe_call_t: the fields for a text are problem"),
    ],
)
def test_check_finds_a_name_that_breaks_a_rule(tmp_path, header, old, new, said):
    problems = refused(tmp_path, header, old, new)
    assert said in problems


@pytest.mark.parametrize(
    "header, old, new, said",
    [
        # lists without a length, or with one that nothing defines
        ("mesh.h", "int32_t* size);", "int32_t* size, size_t* starts);", "dsc_mesh_size: @param[in|out] starts is missing"),
        ("mesh.h", "int32_t* size);", "int32_t* size, size_t* starts);", "dsc_mesh_size: starts is size_t*; its comment must begin with its length"),
        ("bucket.h", "[n + 1] entries", "entries", "dsc_bucket_plan: starts is size_t*; its comment must begin with its length"),
        ("bucket.h", "[n + 1] entries", "[m + 1] entries", "dsc_bucket_plan: starts has the length 'm + 1', but m is neither an argument"),
        ("pipe.h", "[options.stages + 1]", "[options.depth + 1]", "but options.depth is neither an argument, a field"),
        ("expert_parallel.h", "of sum_dtype]", "of big_dtype]", "weights has elements of big_dtype; expected one of dtype"),
        ("collectives.h", "@param[in] send [count] elements\n", "@param[in] send elements\n", "dsc_all_reduce: send is const void*; its comment must begin"),
        ("op.h", "[inout count] elements", "[count] elements", "dsc_op_call_t: result is void*; its mark must say who writes"),
        # outputs and lists of pointers of which nothing says how large they, or their entries, are
        ("recovery.h", "needed", "n_ranks", "has a capacity, but nothing says how much is needed; expected the argument needed"),
        ("pipe_run.h", "void* const* inputs;", "void* const* others;", "dsc_pipe_call_t: others is a list of void*, but nothing says what these point to"),
        # facts that contradict the type, and memory of the library without an end
        ("comm.h", "@param[in,out] stats", "@param[out] stats", "dsc_comm_stats: stats is dsc_op_stats_t*, whose struct_size is read"),
        ("coalesced.h", "@param[in] tensors tensors with the same counts and types in the same", "@param[in,out] tensors those of the same", "which cannot be written"),
        ("memory.h", "memory is valid until dsc_mem_free()", "until dsc_mem_free()", "dsc_mem_alloc: memory is memory of the library; expected a sentence"),
        # a callback that does not say where it runs and what it may call
        ("op.h", "Threads: any thread, and", "On any thread, and", "dsc_op_fn: threads is ''; expected 'the calling thread'"),
        ("op.h", "Threads: any thread, and", "Threads: some thread, and", "dsc_op_fn: threads is 'some thread"),
        ("log.h", "May call:", "It calls:", "dsc_log_fn: 'May call' is missing"),
        ("log.h", "@param[in] record", "@param record", "dsc_log_fn: @param[in|out] record is missing"),
    ],
)
def test_check_finds_a_pointer_or_callback_that_is_not_described(tmp_path, header, old, new, said):
    problems = refused(tmp_path, header, old, new)
    assert said in problems


def test_check_finds_a_stale_file(tmp_path):
    """If a value is changed in a copy of the tree, the check fails and shows the value in its difference."""
    change(tmp_path, "types.h", "DSC_OP_BXOR = 108,", "DSC_OP_BXOR = 109,")
    shutil.copytree(ROOT / "bindings", tmp_path / "bindings")
    done = subprocess.run([sys.executable, str(tmp_path / "bindings" / "generate.py"), "--check"], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 1
    assert "-    BXOR = 108" in done.stdout and "+    BXOR = 109" in done.stdout


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("compiled"))


def test_structs_are_as_compiled(compiled):
    checked = 0
    for struct, kind in by_class(API["structs"]):
        assert ctypes.sizeof(kind) == compiled[struct["name"]] == struct["size"]
        assert [name for name, _ in kind._fields_] == [field["name"] for field in struct["fields"]]
        for field in struct["fields"]:
            here, path = getattr(kind, field["name"]), f"{struct['name']}.{field['name']}"
            assert here.offset == compiled[path] == field["offset"], path
            assert here.size == compiled[path + "#"] == field["size"], path
            checked += 1
    assert checked > 30


def test_values_are_as_compiled(compiled):
    for enum, kind in by_class(API["enums"]):
        listed = {v["name"]: v["value"] for v in enum["values"]}
        for name, value in listed.items():
            assert compiled[name] == value, name
        plain = sorted(value for name, value in listed.items() if not name.endswith("_FORCE32"))
        assert sorted(int(member) for member in kind) == plain
    for constant in API["constants"]:
        assert compiled[constant["name"]] == constant["value"]
        assert getattr(_raw, constant["name"].removeprefix("DSC_")) == constant["value"]


def test_functions_have_the_arguments_of_the_header():
    for function in API["functions"]:
        result, arguments = _raw.FUNCTIONS[function["name"]]
        assert len(arguments) == len(function["arguments"]), function["name"]
        assert getattr(lib, function["name"]).argtypes == arguments
        widths = {"int32_t": 4, "dsc_result_t": 4, "uint64_t": 8, "size_t": 8, "int64_t": 8} | {e["name"] + "_t": 4 for e in API["enums"]}
        for argument, kind in zip(function["arguments"], arguments):
            assert ctypes.sizeof(kind) == widths.get(argument["type"], 8), (function["name"], argument["name"])
        assert (result is ctypes.c_char_p) == (function["returns"] == "const char*")


def test_every_function_is_described():
    for function in API["functions"]:
        for key in ("brief", "result", "since", "collective", "blocking", "threads"):
            assert function[key], (function["name"], key)
        for argument in function["arguments"]:
            assert argument["direction"] in ("in", "out", "inout") and argument["brief"] and argument["role"]


def test_the_facts_of_pointers():
    """Some arguments of every role, compared with what the header's comment says."""
    by_name = {entry["name"]: entry for entry in API["functions"] + API["structs"] + API["callbacks"]}

    def facts(owner, name, *keys):
        parts = by_name[owner].get("arguments") or by_name[owner]["fields"]
        found = next(part for part in parts if part["name"] == name)
        return [found.get(key) for key in keys]

    assert facts("dsc_comm_rank", "rank", "role", "direction", "length", "null", "range") == ["number", "out", None, None, "0 to size - 1"]
    assert facts("dsc_bucket_plan", "starts", "role", "length", "element", "null") == ["list", "n + 1", "size_t", None]
    assert facts("dsc_bucket_plan", "bucket_limits", "length", "null") == ["n", "nothing is written"]
    assert facts("dsc_comm_name", "text", "role", "length", "null") == ["text", "capacity", "with capacity 0"]
    assert facts("dsc_all_gather", "recv", "role", "length", "element", "valid") == ["data", "size * count", "dtype", "until completion"]
    assert facts("dsc_all_reduce", "work", "role", "null") == ["new_handle", "none"]
    assert facts("dsc_bucket_hook_fn", "work", "role", "null") == ["new_handle", None]  # the value may be NULL, the address not
    assert facts("dsc_world", "world", "role", "direction", "null") == ["handle", "out", None]
    assert facts("dsc_broadcast", "send", "length", "null") == ["count", "on other ranks"]
    assert facts("dsc_broadcast_shape", "shape", "direction", "length") == ["inout", "max(capacity, ndim)"]
    assert facts("dsc_comm_stats", "stats", "role", "direction", "null", "needed") == ["list", "inout", "with capacity 0", "needed"]
    assert facts("dsc_mesh_groups", "ranks", "length", "needed") == ["capacity", "n_groups * group_size"]
    assert facts("dsc_mesh_plan", "starts", "length", "needed") == ["group_capacity + 1", "n_groups + 1"]
    assert facts("dsc_sharded_shard_t", "grads", "element") == ["grad_dtype"]
    assert facts("dsc_pipe_call_t", "output_shapes", "role", "length", "element", "entry") == ["list", "n_outputs", "int64_t*", "output_tensors.ndim"]
    assert facts("dsc_pipe_call_t", "inputs", "element", "entry") == ["void*", "input_tensors"]
    assert facts("dsc_ring_begin", "grad", "element", "null") == ["grad_dtype", "if grad_dtype is 0"]
    assert facts("dsc_moe_plan_options_t", "experts", "range") == ["1 to 2^24"]
    assert facts("dsc_pipe_costs_t", "overlap", "range") == ["above 0, at most 1"]
    assert facts("dsc_comm_split", "options", "role", "null") == ["struct", "defaults"]
    assert facts("dsc_comm_split", "group", "role", "null") == ["new_handle", None]
    assert facts("dsc_store_check", "keys", "role", "length", "element") == ["texts", "n", "text"]
    assert facts("dsc_moe_combine", "weights", "length", "element", "null") == ["plan.tokens * plan.top_k", "sum_dtype", "all are 1"]
    assert facts("dsc_bucket_reducer_grad_view", "view", "role", "length", "element") == ["view", "param_count", "view_dtype"]
    assert facts("dsc_bucket_reducer_set_hook", "hook", "role", "valid") == ["callback", "until the hook is removed or the reducer is destroyed"]
    assert facts("dsc_sharded_grad_view", "view", "role", "valid") == ["view", "until the object is destroyed"]
    assert facts("dsc_log_set_callback", "context", "role", "valid") == ["context", "until the callback is removed"]
    assert facts("dsc_store_options_t", "timeout_ms", "unit", "range") == ["milliseconds", "1 or more"]
    assert facts("dsc_op_call_t", "error", "role", "direction", "length") == ["text", "out", "error_capacity"]
    assert facts("dsc_op_fn", "call", "role", "direction") == ["struct", "in"]
    assert facts("dsc_mem_free", "memory", "role", "null") == ["address", "does nothing"]


def test_the_links():
    named = {kind: {entry["name"]: entry for entry in API[kind]} for kind in ("aliases", "enums", "handles", "structs", "functions", "callbacks")}
    assert named["aliases"]["dsc_dtype_t"]["enum"] == "dsc_dtype" and named["enums"]["dsc_dtype"]["alias"] == "dsc_dtype_t"
    assert named["handles"]["dsc_comm_t"]["destroy"] == "dsc_comm_destroy" and "dsc_comm_split" in named["handles"]["dsc_comm_t"]["makers"]
    assert named["structs"]["dsc_tensor_t"]["init"] == "dsc_tensor_init"
    assert "DSC_TRUNCATED" in named["functions"]["dsc_moe_plan_source_rows"]["codes"]  # by reference to another function
    assert named["functions"]["dsc_all_reduce"]["fails_as_operation"] and not named["functions"]["dsc_dtype_bytes"]["fails_as_operation"]
    assert named["callbacks"]["dsc_op_fn"]["threads"].startswith("any thread") and named["callbacks"]["dsc_op_fn"]["may_call"]
    assert API["format"] == 1 and len(API["headers"]) > 30 and all(header["brief"] for header in API["headers"])


def test_operations_and_their_outputs():
    """What starts an operation may fail as one. Every capacity may be 0, with NULL, except that of dsc_log_read()."""
    for function in API["functions"]:
        arguments = {argument["name"]: argument for argument in function["arguments"]}
        if "work" in arguments and arguments["work"]["role"] == "new_handle":
            assert function["fails_as_operation"] and arguments["work"]["null"], function["name"]
        for argument in arguments.values():
            if argument.get("length") == "capacity" and function["name"] != "dsc_log_read":
                assert argument["null"] == "with capacity 0", (function["name"], argument["name"])
        assert function["threads"].startswith(("any", "one at a time per ")), function["name"]
    assert not next(f for f in API["functions"] if f["name"] == "dsc_trace_dump_request")["fails_as_operation"]


def test_every_value_has_a_name_in_the_library():
    for result in _raw.Result:
        assert lib.dsc_result_name(result).decode() == f"DSC_{result.name}"
    for dtype in _raw.Dtype:
        assert lib.dsc_dtype_name(dtype).decode() == dtype.name.lower()
        size = ctypes.c_size_t()
        assert lib.dsc_dtype_bytes(dtype, ctypes.byref(size)) == 0
        assert size.value == _dtypes.BYTES[dtype]
    for op in _raw.Op:
        assert lib.dsc_op_name(op).decode() == op.name.lower()
