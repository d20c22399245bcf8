"""log_to_logging(): every record appears once with its rank and level, even with threads, forks and exits."""

import os
import subprocess
import sys

import pytest

import libdsc as dsc

SECONDS = 100  # the time limit of a program

LISTENS = """
import logging, sys, libdsc as dsc
class Lines(logging.Handler):
    def emit(self, record):
        sys.stdout.write(f"{record.levelname} {record.rank} {record.getMessage()}\\n")  # one write, so that lines of processes do not mix
        sys.stdout.flush()
logging.getLogger().addHandler(Lines())
logging.getLogger().setLevel(logging.DEBUG)
"""


def run(program, **variables):
    """Runs a program in a separate process. Returns its lines on stdout, and stderr."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DSC_LOG", "RANK", "WORLD", "PYTHONUNBUFFERED"))}
    done = subprocess.run(
        [sys.executable, "-c", LISTENS + program], env={**clean, **variables}, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def stages(n):
    return [f"partition (uniform): stage {stage} of {n} has layer {stage}" for stage in range(n)]


def test_nothing_is_logged_unless_asked():
    assert run("dsc.init_distributed(); dsc.partition_layers([1, 1], 2); dsc.finalize()") == ([], "")


def test_levels_ranks_and_messages():
    lines, errors = run(
        "dsc.log_to_logging('debug')\n"
        "dsc.partition_layers(None, 2, method='uniform', names=['x', 'y'])\n"
        "world = dsc.init_distributed()\n"
        "dsc.init_distributed()\n"
        "world.split(0, name='100 %d').abort()\n"
    )
    assert lines[:2] == [f"INFO None {text}" for text in stages(2)] and errors == ""
    assert any(line.startswith("DEBUG 0 start-up: ") for line in lines)
    assert "INFO 0 distributed backend is already initialized: the existing world is used" in lines
    assert any("100 %d" in line and line.startswith("INFO 0 ") for line in lines)
    assert len(set(lines)) == len(lines)


def test_records_of_threads_have_their_ranks():
    lines, _ = run(
        "import os, threading\n"
        "job = f'logging-{os.getpid()}'\n"
        "dsc.log_to_logging()\n"
        "def rank(number):\n"
        "    dsc.init_distributed(rank=number, world_size=3, rank_per_thread=True, job_id=job, init_timeout=60).barrier()\n"
        "    dsc.finalize()\n"
        "threads = [threading.Thread(target=rank, args=(number,)) for number in range(3)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    ready = sorted(line.partition(" is ready")[0] for line in lines if " is ready" in line)
    assert ready == [f"INFO {rank} rank {rank} of 3" for rank in range(3)]


def test_no_line_is_lost_at_exit_or_written_twice():
    """The program ends while its handler is far behind, and DSC_LOG is set as well."""
    slow = "import time\nclass Slow(logging.Filter):\n    def filter(self, record):\n        time.sleep(0.003)\n        return True\n"
    lines, errors = run(
        slow + "logging.getLogger().handlers[0].addFilter(Slow())\n"
        "dsc.log_to_logging()\n"
        "dsc.partition_layers(None, 900, method='uniform', names=['x'] * 900)\n",
        DSC_LOG="info",
    )
    assert lines == [f"INFO None {text}" for text in stages(900)] and errors == ""


def test_what_was_made_before_the_end_is_delivered():
    lines, _ = run(
        "for number in range(300):\n"
        "    dsc.log_to_logging()\n"
        "    dsc.partition_layers([number], 1)\n"
        "    dsc.log_to_logging('off')\n"
        "    dsc.partition_layers([1000], 1)\n"
    )
    assert [line.rpartition(" ")[2] for line in lines] == [str(number) for number in range(300)]


def test_what_is_not_sent_to_logging_is_written_for_dsc_log():
    lines, errors = run("dsc.log_to_logging('warn'); dsc.partition_layers([1], 1)", DSC_LOG="info")
    assert lines == [] and errors.count("stage 0 of 1") == 1
    lines, errors = run(
        "dsc.log_to_logging(); dsc.log_to_logging('off'); dsc.partition_layers([1], 1)", DSC_LOG="info"
    )
    assert lines == [] and errors.count("stage 0 of 1") == 1


def test_one_listener_takes_the_place_of_another():
    lines, _ = run(
        "dsc.log_to_logging()\n"
        "dsc.partition_layers(None, 200, method='uniform', names=['x'] * 200)\n"
        "dsc.set_log(lambda level, text: print('callback', text, flush=True))\n"
        "dsc.partition_layers([1], 1)\n"
        "dsc.set_log(lambda level, text: print('other', text, flush=True), 'debug')\n"
        "dsc.partition_layers([1], 1)\n"
        "dsc.log_to_logging('debug')\n"
        "dsc.partition_layers([1], 1)\n"
    )
    assert lines[:200] == [f"INFO None {text}" for text in stages(200)]
    last = "partition (bottleneck): stage 0 of 1 has layer 0, weight 1"
    assert lines[200:] == [f"callback {last}", f"other {last}", f"INFO None {last}"]


def test_the_time_is_that_of_the_record():
    """The time of a record stays correct if the handler is behind."""
    lines, _ = run(
        "import time\n"
        "class Times(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        print(record.created, record.msecs, record.threadName, flush=True)\n"
        "        time.sleep(1)\n"
        "logging.getLogger().handlers[:] = [Times()]\n"
        "dsc.log_to_logging()\n"
        "before = time.time()\n"
        "dsc.partition_layers([1, 1], 2)\n"
        "after = time.time()\n"
        "dsc.log_to_logging('off')\n"
        "print(before, after)\n"
    )
    *records, limits = [line.split() for line in lines]
    before, after = map(float, limits)
    assert len(records) == 2 and all(before - 0.01 <= float(created) <= after for created, _, _ in records)
    assert all(0 <= float(msecs) < 1000 and thread == "dsc-log" for _, msecs, thread in records)


def test_a_factory_that_gives_ranks_is_no_obstacle():
    lines, errors = run(
        "class Ranked(logging.LogRecord):\n"
        "    def __init__(self, *args, **more):\n"
        "        super().__init__(*args, **more)\n"
        "        self.rank = 'mine'\n"
        "logging.setLogRecordFactory(Ranked)\n"
        "dsc.log_to_logging('warn')\n"
        "world = dsc.init_distributed(verbose=True)\n"
        "dsc.log_to_logging()\n"
        "dsc.init_distributed()\n"
    )
    assert lines[0].startswith("INFO 0 joined <libdsc.Communicator 'world', rank 0 of 1>, backend host") and errors == ""
    assert lines[1:] == ["INFO 0 distributed backend is already initialized: the existing world is used"]


WAITS = """
import os, sys, time
import libdsc as dsc
if "listens" in sys.argv:
    dsc.set_log(lambda level, text: None, "error")
world = dsc.init_distributed()
if world.rank:
    time.sleep(33)
world.barrier()
world.barrier()
dsc.finalize()
"""


def test_an_operation_that_waits_30_s_says_so_unasked(tmp_path):
    """The message appears once, but not if DSC_LOG is off or the program has a listener.

    All cases run at the same time, because they take half a minute.
    """
    program = tmp_path / "waits.py"
    program.write_text(WAITS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DSC_LOG", "RANK", "WORLD"))}
    command = [os.environ["DSCRUN"], "-n", "2", "--", sys.executable, str(program)]
    cases = [([], {}), ([], {"DSC_LOG": "off"}), (["listens"], {})]
    jobs = [
        subprocess.Popen(command + words, env={**clean, **variables}, stderr=subprocess.PIPE, text=True)
        for words, variables in cases
    ]
    said = [job.communicate(timeout=SECONDS)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0, 0] and said[1:] == ["", ""], said
    (line,) = said[0].splitlines()
    assert ' warn: collective 1 (barrier) of group "world" has waited 30.' in line and " for rank 1 (pid " in line


CHILD = """
import os
for number in range(20):
    dsc.partition_layers([1] * (number + 1), number + 1)
    child = os.fork()
    if child == 0:
        in_child()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("leaves", ["os._exit(0)", "sys.exit(0)"])
def test_children_made_by_fork_begin_without_it(leaves):
    """The log thread of the parent is running while the child is forked."""
    lines, errors = run(
        f"def in_child():\n    dsc.partition_layers([5], 1)\n    {leaves}\n" + "dsc.log_to_logging()\n" + CHILD,
    )
    assert len(lines) == len(set(lines)) == 210 and errors == ""


def test_children_made_by_fork_may_ask_for_it():
    lines, errors = run(
        "def in_child():\n"
        "    dsc.log_to_logging()\n"
        "    dsc.partition_layers([100 + number], 1)\n"
        "    sys.exit(0)\n"
        "dsc.log_to_logging()\n" + CHILD,
    )
    of_children = [line for line in lines if int(line.rpartition(" ")[2]) >= 100]
    assert len(lines) == len(set(lines)) == 230 and len(of_children) == 20 and errors == ""


def test_children_of_a_rank_log_nothing_and_end():
    lines, errors = run(
        "def in_child():\n"
        "    try:\n"
        "        dsc.log_to_logging('off')\n"
        "    except dsc.ForkedError:\n"
        "        sys.exit(0)\n"
        "dsc.init_distributed()\n"
        "dsc.log_to_logging()\n" + CHILD
    )
    assert len(lines) == len(set(lines)) == 210 and errors == ""


def test_a_thread_that_holds_the_handler_delays_lines_only():
    lines, _ = run(
        "handler = logging.getLogger().handlers[0]\n"
        "dsc.log_to_logging()\n"
        "world = dsc.init_distributed()\n"
        "with handler.lock:\n"
        "    import time\n"
        "    for _ in range(100):\n"
        "        dsc.init_distributed()\n"
        "        world.barrier()\n"
        "    print('held', flush=True)\n"
    )
    assert sum("already initialized" in line for line in lines) == 100
    assert not any("already" in line for line in lines[: lines.index("held")])


def test_a_handler_that_raises_harms_nobody():
    lines, errors = run(
        "class Raises(logging.Filter):\n"
        "    def filter(self, record):\n"
        "        raise KeyError('from the filter')\n"
        "raises = Raises()\n"
        "logging.getLogger().handlers[0].addFilter(raises)\n"
        "dsc.log_to_logging()\n"
        "dsc.partition_layers([1], 1)\n"
        "dsc.log_to_logging('off')\n"
        "logging.getLogger().handlers[0].removeFilter(raises)\n"
        "dsc.log_to_logging()\n"
        "dsc.partition_layers([1, 1], 2)\n"
    )
    assert len(lines) == 2 and errors.count("from the filter") == 1


def test_wrong_levels_are_refused():
    with pytest.raises(ValueError, match='level is "loud"; expected one of'):
        dsc.log_to_logging("loud")


def test_a_child_made_during_a_line_does_not_write_it_again():
    """The handler is slow between writing and flushing, and the process forks in between."""
    lines, _ = run(
        "import os, time\n"
        "class Slow(logging.Handler):\n"
        "    def emit(self, record):\n"
        "        sys.stdout.write(record.getMessage())\n"
        "        writing.set()\n"
        "        time.sleep(0.2)\n"
        "        sys.stdout.write('\\n')\n"
        "        sys.stdout.flush()\n"
        "import threading\n"
        "writing = threading.Event()\n"
        "logging.getLogger().handlers[:] = [Slow()]\n"
        "dsc.log_to_logging()\n"
        "dsc.partition_layers([1], 1)\n"
        "writing.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    assert lines == ["partition (bottleneck): stage 0 of 1 has layer 0, weight 1"]


def test_fork_ends_where_a_handler_waits_for_the_forking_thread():
    lines, _ = run(
        "import os\n"
        "handler = logging.getLogger().handlers[0]\n"
        "dsc.log_to_logging()\n"
        "with handler.lock:\n"
        "    dsc.partition_layers([1], 1)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    assert len(lines) == 1
