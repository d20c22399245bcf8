"""What the tools of packages promise: hidden symbols of Gloo, bytes that do not depend on the folder, one place for
addresses, one list of symbols.
"""

import os
import pathlib
import subprocess
import sys

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / folder) for folder in ("tools/wheel", "tools/release", "debian")]
import addresses  # noqa: E402
import finish  # noqa: E402
import hide_gloo  # noqa: E402
import sbom  # noqa: E402
import write_symbols  # noqa: E402

MODULE = pathlib.Path(os.environ.get("DSC_BUILD_FOLDER", "")) / "capi/libdsc_gloo.so"
FILLED = {
    "homepage": "https://example.org/",
    "repository": "https://example.org/libdsc.git",
    "maintainer": "Jane Doe <jane@example.org>",
    "security": "security@example.org",
}


@pytest.mark.skipif(not MODULE.exists(), reason="the module for Gloo is not built")
def test_the_module_exports_only_its_table():
    exported = {name for section, _, name in hide_gloo.dynamic_symbols(MODULE) if section != "UND"}
    assert exported == {"dsc_transport_module"}


@pytest.mark.skipif(not MODULE.exists(), reason="the module for Gloo is not built")
def test_visible_symbols_of_gloo_are_a_problem():
    found = hide_gloo.problems([MODULE], MODULE)
    assert any("tcp4Pair" in problem for problem in found)  # this build uses the system's Gloo


def test_a_hidden_name_is_still_a_valid_mangled_name():
    name = hide_gloo.renamed("_ZN4gloo9transport3tcp4Pair5closeEv")
    readable = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout
    assert readable.strip() == "dsc_gloo::transport::tcp::Pair::close()"


def a_wheel(folder):
    information = folder / "libdsc-0.1.0.dist-info"
    (folder / "libdsc").mkdir(parents=True)
    information.mkdir()
    (folder / "libdsc/run.py").write_text("pass\n")
    (folder / "libdsc/program").write_bytes(b"\x7fELF")
    (information / "RECORD").write_text("")
    return folder


def test_a_packed_wheel_depends_only_on_files_and_date(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    packed = []
    for number, name in enumerate(("a", "another/b")):
        wheel = a_wheel(tmp_path / name)
        os.utime(wheel / "libdsc/run.py", (number, number))
        finish.pack(wheel, tmp_path / f"{number}.whl", {"libdsc/program": 0o755})
        packed.append((tmp_path / f"{number}.whl").read_bytes())
    assert packed[0] == packed[1]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000100")
    finish.pack(tmp_path / "a", tmp_path / "later.whl", {"libdsc/program": 0o755})
    assert (tmp_path / "later.whl").read_bytes() != packed[0]


def test_a_bundled_library_is_found_under_its_original_name():
    assert sbom.original_name(pathlib.Path("libhwy-019861ac.so.1.0.3")) == "libhwy.so.1.0.3"
    assert sbom.original_name(pathlib.Path("libnl-3-a9aeb098.so.200.26.0")) == "libnl-3.so.200.26.0"


@pytest.mark.parametrize("name", addresses.FILES)
def test_addresses_can_be_filled_and_emptied_again(name):
    text = (PROJECT / name).read_text()
    filled = addresses.FILES[name](text, FILLED)
    assert "example.org" in filled
    assert addresses.FILES[name](filled, FILLED) == filled
    assert addresses.FILES[name](filled, dict.fromkeys(FILLED, "")) == text


def test_symbols_have_the_version_of_their_node():
    later = "DSC_0.1 {\n global:\n  dsc_b;\n  dsc_a;\n local: *;\n};\nDSC_0.2 {\n global:\n  dsc_c;\n} DSC_0.1;\n"
    assert write_symbols.lines(later) == [
        " DSC_0.1@DSC_0.1 0.1.0",
        " DSC_0.2@DSC_0.2 0.2.0",
        " dsc_a@DSC_0.1 0.1.0",
        " dsc_b@DSC_0.1 0.1.0",
        " dsc_c@DSC_0.2 0.2.0",
    ]
