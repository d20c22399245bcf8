"""A bare Debian 12 root, like a new machine or container, and commands that run inside it.

mmdebstrap makes the root once (minbase, with git and ccache), and it is kept. Every run gets its own overlay on top of
the root, so that no run sees what another one has installed. A run also gets its own mount, process, host name and IPC
namespaces. It uses the network of the machine, because it needs packages.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
from typing import IO, Optional

SUITE = "bookworm"
# git, because a new user has cloned the project. ccache, so that each way reuses files that another way has compiled.
PACKAGES = "git,ca-certificates,ccache"
CACHE = "/srv/ccache"
SOURCE = "/srv/libdsc"  # the clone inside the root
HOST_NAME = "bare"

# The machine's settings for its package registries. A root on this machine needs them as well.
REGISTRY_VARIABLES = ("PIP_", "SSL_CERT_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
REGISTRY_FILES = ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")

# Does what a container runtime does before it starts the first process.
ENTER = r"""
set -e
mount -t overlay overlay -o "lowerdir=$base,upperdir=$run/upper,workdir=$run/work" "$run/root"
cd "$run/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
mount --bind "$cache" srv/ccache
hostname "$host_name"
exec chroot . "$@"
"""


def ci() -> dict[str, str]:
    """Returns CI=true if it is set here. Compiler warnings are errors then."""
    return {"CI": os.environ["CI"]} if os.environ.get("CI") else {}


CRATES = """[source.crates-io]
replace-with = "debian"

[source.debian]
directory = "/usr/share/cargo/registry"
"""


class Unavailable(Exception):
    """This machine cannot make or enter a root. The text gives the reason."""


def check() -> None:
    """Raises Unavailable if a root cannot be made or entered here."""
    if os.geteuid() != 0:
        raise Unavailable("needs root, to mount and to change the root folder")
    for program, package in (("mmdebstrap", "mmdebstrap"), ("unshare", "util-linux")):
        if not shutil.which(program):
            raise Unavailable(f"{program} is missing (Debian: {package})")
    if subprocess.run(["unshare", "--mount", "--pid", "--uts", "--fork", "true"], capture_output=True).returncode:
        raise Unavailable("this machine allows no mount namespaces")


def make_base(folder: pathlib.Path) -> pathlib.Path:
    """Makes the root that all runs share, unless it exists already."""
    base = folder / f"{SUITE}-minbase"
    if base.exists():
        return base
    making = folder / "making"
    shutil.rmtree(making, ignore_errors=True)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(making)]
    subprocess.run(command, check=True)
    acquire = subprocess.run(["apt-config", "dump", "Acquire"], check=True, capture_output=True, text=True).stdout
    (making / "etc/apt/apt.conf.d/90registry").write_text(acquire)
    for name in REGISTRY_FILES:
        if os.path.exists(f"/{name}"):
            shutil.copyfile(f"/{name}", making / name)
    cargo = making / "root/.cargo"  # Debian also packages crates, for machines that cannot reach the registry of Rust
    cargo.mkdir()
    (cargo / "config.toml").write_text(CRATES)
    making.rename(base)
    return base


class Root:
    """One run's overlay of the base root, with a clone of the project inside."""

    def __init__(self, base: pathlib.Path, run: pathlib.Path, project: pathlib.Path, user: Optional[str] = None):
        self._base, self._run = base, run
        # a separate cache for builds in which warnings are errors
        self._cache = base.parent / ("ccache-strict" if ci() else "ccache")
        self._cache.mkdir(exist_ok=True)
        self._cache.chmod(0o777)
        self.user = user
        if run.exists():
            shutil.rmtree(run)
        for name in ("upper", "work", "root"):
            (run / name).mkdir(parents=True)
        self.clone = self.path(SOURCE)
        self.clone.parent.mkdir(parents=True, exist_ok=True)
        self.path(CACHE).mkdir()
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(project), str(self.clone)], check=True)
        if user is None:
            self.path("/etc").mkdir()
            self.path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {HOST_NAME}\n")
        else:
            self.call(ORDINARY_USER.format(user=user, source=SOURCE), as_root=True)

    def path(self, inside: str) -> pathlib.Path:
        """Returns the path outside of the root for a file that this run makes inside."""
        return self._run / "upper" / inside.lstrip("/")

    def start(self, script: str, folder: str, as_root: bool = False, **variables: str) -> subprocess.Popen[str]:
        """Starts a bash script inside the root.

        Its standard output and error are one pipe. Killing it also kills all its children.
        """
        inside = ["bash", "-c", f"cd {shlex.quote(folder)} && {script}"]
        if self.user and not as_root:
            inside = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", *inside]
        environment = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY_VARIABLES)}
        environment |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        environment |= {"CCACHE_DIR": CACHE, "CCACHE_UMASK": "000", "CCACHE_NOHASHDIR": "1"}
        # the options in which ./dev and a plain Meson build differ
        environment |= {"CCACHE_IGNOREOPTIONS": "-g -g1 -Werror"}
        environment |= {"HOME": f"/srv/{self.user}" if self.user else "/root", "TERM": "dumb", **variables}
        settings = [f"{name}={value}" for name, value in environment.items()]
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", "env", "-i", *settings, *inside],
            env={**os.environ, "base": str(self._base), "run": str(self._run), "cache": str(self._cache), "host_name": self.host_name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    @property
    def host_name(self) -> str:
        """Returns the root's host name, which cannot be resolved inside the root of an ordinary user."""
        return HOST_NAME if self.user is None else "unresolvable"

    def call(self, script: str, folder: str = "/", as_root: bool = False, log: Optional[IO[str]] = None) -> None:
        """Runs a script until it ends. If it fails, raises an error with its output."""
        process = self.start(script, folder, as_root)
        output, _ = process.communicate()
        if log:
            log.write(output)
        if process.returncode:
            raise RuntimeError(f"exit {process.returncode}: {script}\n{output}")

    def remove(self) -> None:
        """Removes what this run has written."""
        shutil.rmtree(self._run, ignore_errors=True)


# In a new container /etc/hosts may be empty, even without localhost.
ORDINARY_USER = """
rm -f /etc/hosts
apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends sudo >/dev/null
useradd --create-home --home-dir /srv/{user} --shell /bin/bash {user}
echo '{user} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{user}
chown -R {user} {source}
"""
