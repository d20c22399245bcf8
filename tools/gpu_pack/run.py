"""Builds libdsc from the packed sources and runs its GPU tests, sanitizers and benchmarks, one step after another.

Writes FOLDER/report.txt, FOLDER/report.json and the complete output in FOLDER/logs.tar.gz. The exit status is 1 if a
step failed or the time ran out. Otherwise it is 0, even if steps were skipped because the machine lacks something.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time

import steps

HERE = pathlib.Path(__file__).resolve().parent
START = time.monotonic()
TAIL_LINES, HEARTBEAT_S, SKIPPED = 25, 20, 77
printing = threading.Lock()


def say(text: str) -> None:
    with printing:
        print(f"[{time.monotonic() - START:4.0f} s] {text}", flush=True)


def ask(*command: str, environment=None) -> str:
    """Returns the output of a command; an empty text if the command does not exist or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Machine:
    """The machine: what it has, and the environments in which steps run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.fakes = options.fakes
        self.folder = pathlib.Path(options.folder).absolute()
        self.build = self.folder / "build"
        # The environment before run.sh.
        self.own = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
        self.make_programs()
        self.nvcc, self.nvcc_text = self.find_nvcc()
        self.nccl = "" if self.fakes else self.find_nccl()
        self.sanitizer = "" if self.fakes else shutil.which("compute-sanitizer") or self.first(
            [*sorted(pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer"), reverse=True),
             *sorted(pathlib.Path("/usr/local").glob("cuda*/*/compute-sanitizer"), reverse=True)])
        self.torch_python = "" if self.fakes else self.find_torch()

    @staticmethod
    def first(paths) -> str:
        return next((str(path) for path in paths if pathlib.Path(path).is_file()), "")

    def make_programs(self) -> None:
        """Makes scripts that run the packed programs with the packed loader, so that the programs' children do not get
        the packed libraries.
        """
        tools, programs = HERE / "tools", self.folder / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        loader = f'exec "{tools}/lib/ld-linux-x86-64.so.2" --library-path "{tools}/lib" "{tools}/programs'
        lines = {"ninja": f'{loader}/ninja" "$@"', "pkg-config": f'{loader}/pkgconf" "$@"',
                 "python3": f'PYTHONHOME="{tools}/python" {loader}/python3" "$@"'}
        for name, line in lines.items():
            (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
            (programs / name).chmod(0o755)

    def find_nvcc(self) -> tuple:
        """Returns nvcc if it can compile the kernels, and a text about it."""
        nvcc = shutil.which("nvcc") or self.first(["/usr/local/cuda/bin/nvcc"])
        release = re.search(r"release (\d+)\.(\d+)", ask(nvcc, "--version") if nvcc else "")
        if not release:
            return "", ""
        fits = (int(release[1]), int(release[2])) >= (12, 8)
        return nvcc if fits else "", f"{nvcc} {release[0]}{'' if fits else ', too old for the kernels: 12.8 is needed'}"

    def find_nccl(self) -> str:
        """Searches NCCL as libdsc does, and in the folders of CUDA and of the first Python in PATH."""
        if "DSC_NCCL_LIBRARY" in self.own:
            return self.own["DSC_NCCL_LIBRARY"]
        folders = ask("python3", "-c", "import sys; print('\\n'.join(sys.path))", environment=self.own).splitlines()
        found = self.first(pathlib.Path(folder) / "nvidia/nccl/lib/libnccl.so.2" for folder in folders if folder)
        cached = re.findall(r"libnccl\.so\.2 .*=> (/\S+)", ask("/sbin/ldconfig", "-p"))
        return found or self.first([*cached, *sorted(pathlib.Path("/usr/local").glob("cuda*/lib*/libnccl.so.2"))])

    def find_torch(self) -> str:
        python = shutil.which("python3", path=self.own.get("PATH")) or ""
        works = python and ask(python, "-c", "import torch; print(torch.cuda.is_available())", environment=self.own)
        return python if works == "True" else ""

    def build_environment(self) -> dict:
        environment = dict(self.own)
        libraries = HERE / "libraries"
        environment.pop("PKG_CONFIG_PATH", None)
        environment["PKG_CONFIG_LIBDIR"] = str(libraries / "lib" / "pkgconfig")
        for name in "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH":
            environment[name] = ":".join(filter(None, [str(libraries / "include"), environment.get(name)]))
        environment["PATH"] = f"{self.folder / 'programs'}:{environment['PATH']}"
        environment["NINJA"] = str(self.folder / "programs" / "ninja")
        environment["PACK_PYTHON"] = str(self.folder / "programs" / "python3")
        return environment

    def test_environment(self, step: steps.Step) -> dict:
        environment = dict(self.own)
        environment["LD_LIBRARY_PATH"] = ":".join(
            filter(None, [str(self.build / "capi"), str(HERE / "libraries" / "lib"), self.own.get("LD_LIBRARY_PATH")]))
        environment["DSC_TEST_DEVICE"] = "1"
        if step.processes:
            environment["DSC_TEST_RANKS"] = "processes"
        if self.fakes:
            fakes = self.build / "tests" / "support" / "fake_gpu"
            environment["DSC_CUDA_LIBRARY"] = str(fakes / "libfake_cuda.so")
            environment["DSC_NCCL_LIBRARY"] = str(fakes / "libfake_nccl_whole.so")
            environment["FAKE_CUDA_DEVICES"] = "1"  # as on most machines
            environment.pop("CUDA_VISIBLE_DEVICES", None)  # it would select real GPUs
            environment["DSC_TEST_RANKS"] = "processes"
        elif self.nccl:
            environment["DSC_NCCL_LIBRARY"] = self.nccl
        if step.driver and not self.fakes:
            environment.setdefault("DSC_CUDA_LIBRARY", "libcuda.so.1")
        return environment

    def lacks(self, step: steps.Step) -> str:
        has = {"nvcc": self.nvcc, "nccl": self.nccl or self.fakes, "sanitizer": self.sanitizer, "torch_python": self.torch_python,
               "card": not self.fakes}
        names = {"card": "real card", "nvcc": "nvcc 12.8", "sanitizer": "compute-sanitizer", "torch_python": "PyTorch that sees a GPU", "nccl": "libnccl.so.2"}
        return ", ".join(names.get(need, need) for need in step.needs.split() if not has[need])

    def facts(self) -> dict:
        packed = json.loads((HERE / "pack.json").read_text(encoding="utf-8"))
        return {
            "commit": packed["commit"],
            "glibc_needed": packed["glibc"],
            "glibc": (ask("getconf", "GNU_LIBC_VERSION").split() or [""])[-1],
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "compiler": ask("c++", "--version").split("\n")[0],
            "nvcc": self.nvcc_text,
            "gpu": "FAKE" if self.fakes else ask("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
            "nccl": "FAKE" if self.fakes else self.nccl,
            "sanitizer": self.sanitizer,
            "torch": self.torch_python and ask(self.torch_python, "-c", "import torch; print(torch.__version__)", environment=self.own),
        }

    def words_of(self, step: steps.Step, jobs: int) -> list:
        several = {
            "{meson}": [str(self.folder / "programs" / "python3"), "-B", str(HERE / "meson_start.py")],
            "{options}": ["-Dpmix=disabled", "-Dgloo=disabled", "-Ddocs=disabled", "-Dtests=enabled", "-Dcpp_args=-g1", "-Dc_args=-g1",
                          "-Doptimization=2"],
            "{targets}": steps.TARGETS + (steps.WITH_NVCC if self.nvcc else []) + (steps.FAKES if self.fakes else []),
        }
        single = {"{build}": str(self.build), "{source}": str(HERE / "source"), "{jobs}": str(jobs), "{sanitizer}": self.sanitizer,
                  "{ninja}": str(self.folder / "programs" / "ninja"), "{torch_python}": self.torch_python}
        words = []
        for word in step.command:
            for name, text in single.items():
                word = word.replace(name, text)
            words += several.get(word, [word])
        return words


class Runner:
    def __init__(self, machine: Machine, options: argparse.Namespace) -> None:
        self.machine, self.options = machine, options
        self.logs = machine.folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self.deadline = START + options.minutes * 60
        self.results: list = []

    def keep(self, step: steps.Step, state: str, why: str = "", seconds: float = 0, output: str = "") -> bool:
        lines = output.strip().splitlines()
        figures = [json.loads(line) for line in lines if line.startswith('{"bench"')]
        kept = lines if step.name.startswith("bench") else lines[-TAIL_LINES:] if state == "FAILED" else lines[-3:]
        self.results.append({"step": step.name, "state": state, "why": why, "seconds": round(seconds, 1), "figures": figures,
                             "output": [line for line in kept if not line.startswith('{"bench"')]})
        say(f"{step.name}: {state}{', ' + why if why else ''} ({seconds:.0f} s)")
        if state == "FAILED":
            with printing:
                print(*("    " + line[:240] for line in lines[-TAIL_LINES:]), sep="\n", flush=True)
        return state in ("ok", "skipped")

    def run(self, step: steps.Step) -> bool:
        lacking = self.machine.lacks(step)
        if lacking:  # without NCCL almost nothing can be tested, so this counts as a failure
            return self.keep(step, "FAILED" if "libnccl" in lacking else "skipped", f"NO {lacking} here")
        slow = max(1, 16 / self.options.jobs) if step.name == "build" else 1  # the limits are meant for 16 cores
        seconds = min(step.seconds * slow, self.deadline - time.monotonic())
        if seconds < 5:
            return self.keep(step, "FAILED", "not run, time is up")
        building = step.name in ("configure", "build")
        environment = self.machine.build_environment() if building else self.machine.test_environment(step)
        say(f"{step.name}: {step.what} (at most {seconds:.0f} s)")
        begun = time.monotonic()
        try:
            code, timed_out = self.wait(step, environment, seconds)
        except OSError as error:
            return self.keep(step, "FAILED", str(error))
        output = (self.logs / f"{step.name}.txt").read_text(encoding="utf-8", errors="replace")
        taken = time.monotonic() - begun
        if timed_out:
            return self.keep(step, "FAILED", f"ended after {seconds:.0f} s", taken, output)
        if code == SKIPPED:
            return self.keep(step, "skipped", "its output says why", taken, output)
        if code == 0 and step.expects not in output:
            return self.keep(step, "FAILED", f"its output lacks '{step.expects}'", taken, output)
        return self.keep(step, "ok" if code == 0 else "FAILED", f"exit {code}" if code else "", taken, output)

    def wait(self, step: steps.Step, environment: dict, seconds: float) -> tuple:
        """Returns the exit status and whether the step was ended. Regularly prints that it is still running."""
        log = self.logs / f"{step.name}.txt"
        with open(log, "wb") as file:
            child = subprocess.Popen(self.machine.words_of(step, self.options.jobs), stdin=subprocess.DEVNULL, stdout=file,
                                     stderr=subprocess.STDOUT, env=environment, cwd=self.machine.folder, start_new_session=True)
            end = time.monotonic() + seconds
            while True:
                try:
                    code, timed_out = child.wait(max(0.1, min(HEARTBEAT_S, end - time.monotonic()))), False
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() >= end:
                        code, timed_out = -1, True
                        break
                lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
                say(f"{step.name}: still running: {lines[-1][:120]}")
            try:  # also ends ranks that still run
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        return code, timed_out

    def beside(self) -> int:
        gpus = 0 if self.fakes else len(ask("nvidia-smi", "--list-gpus").splitlines())
        return self.options.beside or (1 if gpus == 1 else 3)

    def run_all(self, chosen: list) -> bool:
        good, waiting = True, []
        for step in [*chosen, None]:
            if step is not None and step.beside:
                waiting.append(step)
                continue
            if waiting:
                with concurrent.futures.ThreadPoolExecutor(self.beside()) as pool:
                    good = all([*pool.map(self.run, waiting), good])
                waiting = []
            if step is not None and not self.run(step):
                good = False
                if step.name in ("configure", "build"):
                    break
        return good

    def report(self, facts: dict, good: bool) -> None:
        counts = {state: sum(result["state"] == state for result in self.results) for state in ("ok", "skipped", "FAILED")}
        lines = [f"{name}: {value or 'NONE'}" for name, value in facts.items()] + [""]
        for result in self.results:
            lines.append(f"{result['state']:8}{result['step']:22}{result['seconds']:7.1f} s  {result['why']}")
            if result["state"] != "ok" or result["step"].startswith("bench"):
                lines += ["        " + line for line in result["output"]]
            lines += ["        " + json.dumps(figure) for figure in result["figures"]]
        lines += ["", f"{counts['ok']} ok, {counts['skipped']} skipped, {counts['FAILED']} failed; {time.monotonic() - START:.0f} s"]
        folder = self.machine.folder
        (folder / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        whole = {"good": good, "machine": facts, "counts": counts, "steps": self.results}
        (folder / "report.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        with tarfile.open(folder / "logs.tar.gz", "w:gz") as tar:
            tar.add(self.logs, "logs")
            meson = self.machine.build / "meson-logs" / "meson-log.txt"
            if meson.is_file():
                tar.add(meson, "logs/meson-log.txt")
        say(lines[-1])
        say(f"the report: {folder / 'report.txt'}, with report.json and logs.tar.gz in the same folder")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the steps without running them")
    parser.add_argument("--folder", default="gpu-report", help="for the build and the report (gpu-report, here)")
    parser.add_argument("--fakes", action="store_true", help="a fake driver and a fake NCCL instead of real ones: tests the pack")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="run only these steps; configure and build are added automatically")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the build (the number of cores)")
    parser.add_argument("--beside", type=int, help="tests that run at the same time (3; 1 where they share one GPU)")
    parser.add_argument("--minutes", type=float, default=8, help="time limit for all steps (8); steps that do not fit count as failed")
    options = parser.parse_args()
    unknown = set(options.only or []) - {step.name for step in steps.all_steps()}
    if unknown:
        parser.error(f"unknown step {', '.join(sorted(unknown))}; --list prints all steps")
    return options


def main() -> int:
    options = parse()
    chosen = [step for step in steps.all_steps() if not options.only or step.name in [*options.only, "configure", "build"]]
    if options.list:
        for step in chosen:
            print(f"{step.name:22}{step.seconds:4} s  {step.what}{', needs ' + step.needs if step.needs else ''}")
        return 0
    machine = Machine(options)
    facts = machine.facts()
    for name, value in facts.items():
        say(f"{name}: {value or 'NONE'}")
    if not facts["compiler"]:
        sys.exit("run.sh: no C++ compiler (c++) was found")
    if [int(part) for part in facts["glibc"].split(".")] < [int(part) for part in facts["glibc_needed"].split(".")]:
        sys.exit(f"run.sh: the packed libraries need glibc {facts['glibc_needed']}, but this machine has {facts['glibc']}")
    if not facts["gpu"]:
        sys.exit("run.sh: nvidia-smi finds no GPU; to test the pack without a GPU, use --fakes")
    if machine.build.exists() and not (machine.build / "build.ninja").exists():
        shutil.rmtree(machine.build)
    runner = Runner(machine, options)
    good = runner.run_all(chosen)
    runner.report(facts, good)
    return 0 if good else 1


sys.exit(main())
