"""Describes the other projects' code in the wheel: a CycloneDX document, as PEP 770 places it, and their licenses.

auditwheel writes a document too, but without the libraries whose headers are compiled in, and without those that Debian
registers in /lib. So it is replaced.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import urllib.parse

# Headers that are compiled into libdsc.so, dscrun and dscctl.
HEADER_PACKAGES = ("libasio-dev", "libcli11-dev", "nlohmann-json3-dev")
DOCUMENTS = pathlib.Path("/usr/share/doc")


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def original_name(bundled: pathlib.Path) -> str:
    """Returns the name of a library without the checksum that auditwheel has inserted."""
    return re.sub(r"-[0-9a-f]{8}(?=\.so)", "", bundled.name)


def package_of(bundled: pathlib.Path) -> str:
    owners = output_of("dpkg-query", "--search", f"*/{original_name(bundled)}").splitlines()
    names = sorted({line.split(":")[0] for line in owners})
    if len(names) != 1:
        raise SystemExit(f"wheel: expected one Debian package with {original_name(bundled)}, found {names}")
    return names[0]


def component(package: str, files: list[pathlib.Path]) -> dict[str, object]:
    version, source, architecture = output_of(
        "dpkg-query", "--show", "--showformat=${Version}\t${source:Package}\t${Architecture}\n", package
    ).splitlines()[0].split("\t")
    address = f"pkg:deb/debian/{package}@{urllib.parse.quote(version, safe='')}?arch={architecture}"
    found: dict[str, object] = {
        "type": "library",
        "bom-ref": address,
        "name": package,
        "version": version,
        "purl": address,
        "description": f"Debian package of {source}; " + ("bundled shared library" if files else "headers, compiled in"),
        "licenses": [{"license": {"name": f"see licenses/third-party/{package}.txt"}}],
    }
    if files:
        found["components"] = [
            {"type": "file", "name": f"libdsc.libs/{file.name}", "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}]}
            for file in files
        ]
    return found


def document(version: str, packages: dict[str, list[pathlib.Path]]) -> dict[str, object]:
    """Returns the description of a wheel that contains `packages`, each with its bundled files."""
    whole = f"pkg:pypi/libdsc@{version}"
    parts = [component(package, files) for package, files in sorted(packages.items())]
    subject = {"type": "library", "bom-ref": whole, "name": "libdsc", "version": version, "purl": whole, "licenses": [{"license": {"id": "Apache-2.0"}}]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": subject},
        "components": parts,
        "dependencies": [{"ref": whole, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def add(wheel: pathlib.Path, version: str) -> None:
    """Adds the description and the licenses to the unpacked wheel."""
    packages: dict[str, list[pathlib.Path]] = {name: [] for name in HEADER_PACKAGES}
    for file in sorted(wheel.glob("libdsc.libs/*.so*")):
        packages.setdefault(package_of(file), []).append(file)
    information = wheel / f"libdsc-{version}.dist-info"
    descriptions, licenses = information / "sboms", information / "licenses" / "third-party"
    for folder in (descriptions, licenses):
        folder.mkdir(parents=True, exist_ok=True)
    for other in descriptions.iterdir():
        other.unlink()
    (descriptions / "libdsc.cdx.json").write_text(json.dumps(document(version, packages), indent=1) + "\n")
    for package in packages:
        (licenses / f"{package}.txt").write_bytes((DOCUMENTS / package / "copyright").read_bytes())
