"""All packages name the same version, which is that of the headers."""

import re

import pytest
from conftest import ROOT


def header_version():
    text = (ROOT / "capi" / "include" / "dsc" / "version.h").read_text()
    return ".".join(re.search(rf"#define DSC_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


PLACES = {
    "meson.build": r"^  version: '([^']+)'",
    "bindings/rust/dsc/Cargo.toml": r'^version = "([^"]+)"',
    "bindings/rust/dsc-sys/Cargo.toml": r'^version = "([^"]+)"',
    "debian/changelog": r"^libdsc \(([^)]+)\)",
    "CHANGELOG.md": r"^## ([\d.]+)",
}
PLACES |= {  # only checked if Meson does not set it
    name: r'^version = "([^"]+)"'
    for name in ("pyproject.toml", "bindings/python/pyproject.toml")
    if (ROOT / name).exists() and '\nversion = "' in (ROOT / name).read_text()
}


@pytest.mark.parametrize("place", PLACES)
def test_version(place):
    found = re.search(PLACES[place], (ROOT / place).read_text(), re.MULTILINE)
    assert found and found[1] == header_version()


def test_crates_ask_for_each_other():
    assert f'path = "../dsc-sys", version = "{header_version()}"' in (ROOT / "bindings/rust/dsc/Cargo.toml").read_text()


def test_soname_of_packages():
    text = (ROOT / "capi" / "include" / "dsc" / "version.h").read_text()
    number = re.search(r"#define DSC_SOVERSION (\d+)", text)[1]
    assert f"\nPackage: libdsc{number}\n" in (ROOT / "debian" / "control").read_text()
    assert (ROOT / "debian" / f"libdsc{number}.symbols").read_text().startswith(f"libdsc.so.{number} libdsc{number} ")
    assert f'"libdsc.so.{number}"' in (ROOT / "bindings/rust/dsc-sys/build.rs").read_text()
