"""The raw Rust layer matches the compiled headers, and the crate follows the thread rules of the headers."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest
from compiled import API, constants, measure, numbers
from conftest import ROOT

WORKSPACE = ROOT / "bindings" / "rust"
FFI = WORKSPACE / "dsc-sys" / "src" / "ffi.rs"
SOURCES = {path.stem: path.read_text() for path in sorted((WORKSPACE / "dsc" / "src").glob("*.rs"))}
LIBRARY = os.environ.get("DSC_LIB_DIR", "")


def rust_program():
    """The Rust version of compiled.c_program()."""
    lines = ["#![allow(dead_code, non_camel_case_types)]", f'#[path = "{FFI}"]', "mod ffi;", "use std::mem::*;"]
    lines += ["fn size<T>(_: *const T) -> usize { size_of::<T>() }", "fn main() {"]
    for struct in API["structs"]:
        name = struct["name"]
        lines.append(f'  println!("{name} {{}}", size_of::<ffi::{name}>());')
        lines.append(f"  let place = MaybeUninit::<ffi::{name}>::uninit();")
        for field in struct["fields"]:
            lines.append(f"  let at = unsafe {{ std::ptr::addr_of!((*place.as_ptr()).{field['name']}) }};")
            lines.append(f'  println!("{name}.{field["name"]} {{}}", at as usize - place.as_ptr() as usize);')
            lines.append(f'  println!("{name}.{field["name"]}# {{}}", size(at));')
    lines += [f'  println!("{name} {{}}", ffi::{name});' for name, _ in constants() if not name.endswith("_FORCE32")]
    return "\n".join(lines + ["}", ""])


def test_layout_and_values_are_as_compiled(tmp_path):
    (tmp_path / "print.rs").write_text(rust_program())
    program = tmp_path / "print_rust"
    compile_command = ["rustc", "--edition", "2021", str(tmp_path / "print.rs"), "-o", str(program)]
    subprocess.run(compile_command, check=True, env={**os.environ, "RUSTFLAGS": ""})
    expected = {name: value for name, value in measure(tmp_path).items() if not name.endswith("_FORCE32")}
    assert numbers(program) == expected
    assert len(expected) > 100


def test_every_function_is_declared():
    text = FFI.read_text()
    for function in API["functions"]:
        found = re.search(rf"pub fn {function['name']}\((.*?)\)(?: -> ([^;]+))?;", text, re.DOTALL)
        assert found, function["name"]
        names = re.findall(r"(\w+): ", found[1])
        assert names == [argument["name"] for argument in function["arguments"]]


# ---- threads ----------------------------------------------------------------------------------------------------------

# handle -> (the type in handles.rs that wraps it, the public type that makes its calls)
WRAPPERS = {
    "dsc_comm_t": ("CommHandle", "Comm"),
    "dsc_work_t": ("WorkHandle", "Work"),
    "dsc_bucket_reducer_t": ("ReducerHandle", "BucketReducer"),
    "dsc_pipe_schedule_t": ("ScheduleHandle", "PipeSchedule"),
    "dsc_mesh_t": ("MeshHandle", "Mesh"),
    "dsc_store_t": ("StoreHandle", "Store"),
    "dsc_sharded_t": ("ShardedHandle", "Sharded"),
    "dsc_tied_layers_t": ("TiedHandle", "TiedLayers"),
    "dsc_pipe_report_t": ("ReportHandle", "PipeReport"),
    "dsc_join_t": ("JoinHandle", "Join"),
    "dsc_ring_t": ("RingHandle", "Ring"),
    "dsc_moe_plan_t": ("MoePlanHandle", "MoePlan"),
}


def handle_of(function):
    """Returns the handle that a function's thread rule applies to: its first argument, or the communicator if the rule
    says so."""
    types = [argument["type"] for argument in function["arguments"]]
    if function["threads"].endswith("per communicator") and "dsc_comm_t*" in types:
        return "dsc_comm_t*"
    return types[0] if types else ""


def restricted(handle):
    """Returns the functions on this handle that only one thread may call at a time."""
    on_it = [f for f in API["functions"] if handle_of(f) == f"{handle}*"]
    assert on_it, handle
    return {f["name"] for f in on_it if not f["threads"].startswith("any")}


THREADS = {function["name"]: function["threads"] for function in API["functions"]}


def called(body):
    """Returns the C functions that the text of a Rust function names: it calls them, or chooses one to call."""
    return THREADS.keys() & re.findall(r"sys::(dsc_\w+)\b", body)


def rust_functions():
    """Returns (file, signature, body) for every function of the crate."""
    for file, text in SOURCES.items():
        head = r"(?:pub(?:\(crate\))? )?(?:unsafe )?fn (?:[^;{]|; ?\w+\])*\{\n"
        for found in re.finditer(rf"^( *){head}(?:.|\n)*?^\1\}}", text, re.MULTILINE):
            signature, _, body = found[0].partition("{\n")
            yield file, " ".join(signature.split()), body


def test_every_rule_is_machine_readable():
    for function in API["functions"]:
        assert re.match(r"any\b|one (thread )?at a time per \w+", function["threads"]), function["name"]
    for handle in API["handles"]:
        one_thread = bool(restricted(handle["name"]))
        assert handle["thread_safety"].startswith("one thread at a time" if one_thread else "any thread"), handle


def test_every_handle_has_a_wrapper_that_may_be_sent():
    assert set(WRAPPERS) == {handle["name"] for handle in API["handles"]}
    for handle, (wrapper, _) in WRAPPERS.items():
        assert f"struct {wrapper}(pub(crate) NonNull<sys::{handle}>);" in SOURCES["handles"]
        assert f"unsafe impl Send for {wrapper} {{}}" in SOURCES["handles"]


def test_only_known_types_are_declared_send_or_sync():
    declared = r"unsafe impl(?:<.*?>)? (?:Send|Sync) for (\w+)"
    found = {name for text in SOURCES.values() for name in re.findall(declared, text)}
    assert found == {wrapper for wrapper, _ in WRAPPERS.values()} | {"SharedBuffer", "View"}


def keeps_to_one_thread(handle, file, signature):
    """Communicators are used through Comm, where the library refuses a second thread.

    Other handles need an exclusive reference.
    """
    if handle == "dsc_comm_t":
        return "impl Comm {" in SOURCES[file] or re.search(r"&Comm\b", signature)
    public = WRAPPERS[handle][1]
    return re.search(rf"\( ?(&mut self|mut self|self)\b|: &mut {public}\b|\(&'\w+ mut self", signature)


def test_one_thread_at_a_time_is_kept():
    checked = set()
    for file, signature, body in rust_functions():
        for handle in WRAPPERS:
            for name in called(body) & restricted(handle):
                assert keeps_to_one_thread(handle, file, signature), (file, signature, name)
                checked.add(name)
    assert checked == set().union(*map(restricted, WRAPPERS)), "a restricted function is not offered"


def test_what_a_group_of_operations_would_take_in_waits_for_its_turn():
    """Inside a batch a blocking call only records its buffers.

    Safe code could free them before the batch ends, so the crate must refuse the call.
    """
    operations = {f["name"] for f in API["functions"] if f["header"].endswith("collectives.h")} - {"dsc_monitored_barrier"}
    found = set()
    for file, signature, body in rust_functions():
        for name in called(body) & operations:
            assert "turn(" in body or "fn launch_in_turn" in signature, (file, signature, name)
            found.add(name)
    assert len(found) > 15 and "dsc_batch_begin" in found


def test_what_any_thread_may_do_needs_no_exclusive_reference():
    for file, signature, body in rust_functions():
        for name in called(body):
            if THREADS[name].startswith("any") and not name.endswith(("_destroy", "_free", "_finalize", "_unregister")):
                assert not re.search(r"\(&(?:'\w+ )?mut self", signature), (file, signature, name)


def test_every_function_on_schedules_is_offered():
    offered = set().union(*(called(body) for _, _, body in rust_functions()))
    headers = ("/pipe.h", "/pipe_text.h", "/pipe_simulate.h")
    schedules = {f["name"] for f in API["functions"] if f["header"].endswith(headers)}
    assert len(schedules) > 18 and schedules <= offered, schedules - offered


# ---- messages -----------------------------------------------------------------------------------------------------------


def test_the_table_of_words_names_functions_that_exist():
    calls, rest = SOURCES["words"].split("const METHODS")
    methods, rest = rest.split("const PHRASES")
    pair = r'\("(\w+)", "[\w:]+"\)'
    names = ["dsc_" + name for name in re.findall(pair, calls.split("const CALLS")[1])]
    beginnings = ["dsc_" + name for name in re.findall(pair, methods)]
    quoted = re.findall(r"\b(dsc_\w+)\(\)", rest.split("];")[0])
    assert len(names) > 20 and len(beginnings) > 8 and len(quoted) > 5
    assert [name for name in names + quoted if name not in THREADS] == []
    assert [name for name in beginnings if not any(function.startswith(name) for function in THREADS)] == []


# ---- finding the library ------------------------------------------------------------------------------------------------


def build(tmp_path, **environment):
    env = {name: value for name, value in os.environ.items() if name not in ("DSC_LIB_DIR", "PKG_CONFIG_PATH")}
    env |= {"CARGO_TARGET_DIR": str(tmp_path / "target"), **environment}
    return subprocess.run([WORKSPACE / "cargo.sh", "build -p dsc-sys"], cwd=WORKSPACE, env=env, capture_output=True, text=True)


@pytest.mark.parametrize(
    "environment, said",
    [
        ({"DSC_LIB_DIR": "/nowhere"}, "DSC_LIB_DIR is /nowhere, which has no libdsc.so"),
        ({"PKG_CONFIG": "false"}, "DSC_LIB_DIR is not set, and false says:"),
        ({"PKG_CONFIG": "/no/pkg-config"}, "DSC_LIB_DIR is not set, and /no/pkg-config cannot be run:"),
    ],
)
def test_a_missing_library_is_explained(tmp_path, environment, said):
    done = build(tmp_path, **environment)
    assert done.returncode != 0
    assert f"dsc-sys: libdsc was not found: {said}" in done.stderr
    assert "either set DSC_LIB_DIR" in done.stderr and "or let `pkg-config --libs libdsc` find it" in done.stderr


def test_a_library_of_the_architecture_is_found_below_the_folder(tmp_path):
    folder = tmp_path / "lib" / f"{os.uname().machine}-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libdsc.so.0").touch()
    done = build(tmp_path, DSC_LIB_DIR=str(tmp_path / "lib"))
    assert done.returncode != 0
    assert f"libdsc.so.0 in {folder} is for running programs; linking needs the development files (Debian: libdsc-dev)" in done.stderr
    (folder / "libdsc.so").symlink_to(LIBRARY + "/libdsc.so")
    done = build(tmp_path, DSC_LIB_DIR=str(tmp_path / "lib"))
    assert done.returncode == 0, done.stderr
    assert folders_found(tmp_path) == [str(folder)]


def test_documentation_needs_no_library(tmp_path):
    done = build(tmp_path, DSC_LIB_DIR="/nowhere", DOCS_RS="1")
    assert done.returncode == 0, done.stderr
    assert folders_found(tmp_path) == []


def folders_found(tmp_path):
    """Returns the folders that the build script passed to the linker."""
    (output,) = (tmp_path / "target").rglob("build/dsc-sys-*/output")
    return re.findall(r"^cargo:rustc-link-search=native=(.*)$", output.read_text(), re.MULTILINE)


def test_pkg_config_finds_the_library(tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("there is no pkg-config")
    text = f"Name: libdsc\nDescription: libdsc\nVersion: 0.1.0\nLibs: -L{LIBRARY} -ldsc\n"
    (tmp_path / "libdsc.pc").write_text(text)
    done = build(tmp_path, PKG_CONFIG_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert folders_found(tmp_path) == [LIBRARY]


# ---- publishing ---------------------------------------------------------------------------------------------------------

CRATES = ("dsc-sys", "dsc")


def manifest(crate):
    return (WORKSPACE / crate / "Cargo.toml").read_text()


@pytest.mark.parametrize("crate", CRATES)
def test_manifest_is_fit_for_publishing(crate):
    text = manifest(crate)
    assert "publish = false" not in text
    for key in ("description", "license", "readme", "keywords", "categories", "rust-version"):
        assert re.search(rf"^{key} = ", text, re.MULTILINE), key


def test_crates_are_packaged_without_a_network_and_the_packages_compile(tmp_path):
    # cargo's folder is empty, so no cached registry can help. A cargo from rustup still finds its toolchain.
    rustup = os.environ.get("RUSTUP_HOME", str(pathlib.Path.home() / ".rustup"))
    env = {**os.environ, "CARGO_HOME": str(tmp_path / "empty"), "RUSTUP_HOME": rustup}
    command = [WORKSPACE / "package.sh", tmp_path / "crates"]
    lock = (WORKSPACE / "Cargo.lock").read_bytes()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    assert (WORKSPACE / "Cargo.lock").read_bytes() == lock
    for crate in CRATES:
        (file,) = (tmp_path / "crates").glob(f"{crate}-[0-9]*.crate")
        with tarfile.open(file) as packed:
            names = {name.split("/", 1)[1] for name in packed.getnames()}
            licence = packed.extractfile(f"{file.stem}/LICENSE").read()
            manifest = packed.extractfile(f"{file.stem}/Cargo.toml").read().decode()
        assert {"LICENSE", "README.md", "src/lib.rs"} <= names
        assert licence == (ROOT / "LICENSE").read_bytes()
        assert "path = \"../" not in manifest and ("[dependencies.half]" in manifest) == (crate == "dsc")
