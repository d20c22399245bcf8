"""Names of torch.distributed, mpi4py and Horovod: the errors when a program uses them in libdsc."""

import builtins
import inspect
import re
import subprocess
import sys

import numpy as np
import pytest

import libdsc as dsc
from libdsc import _foreign


@pytest.mark.parametrize(
    "name, text",
    [
        ("allreduce", "use all_reduce() for arrays and all_reduce_object() for Python objects"),
        ("Allreduce", "use all_reduce() for arrays"),
        ("bcast", "use broadcast() for arrays and broadcast_object() for Python objects"),
        ("Allgatherv", "use all_gather(..., counts=...)"),
        ("Scatterv", "use scatter(..., counts=...)"),
        ("Get_rank", "use the attribute rank"),
        ("get_world_size", "use the attribute size"),
        ("all_to_all_single", "use all_to_all()"),
        ("Sendrecv", "use send() and recv() in `with comm.batch():`"),
        ("new_group", "use create_group()"),
        ("broadcast_parameters", "use broadcast_tree()"),
        ("all_redcue", "did you mean all_reduce?"),
    ],
)
def test_members_of_other_libraries(world, name, text):
    with pytest.raises(AttributeError, match=re.escape(text)):
        getattr(world, name)


def test_what_nobody_knows_is_a_plain_error(world):
    for owner in (world, dsc):
        with pytest.raises(AttributeError, match="'xyzzy'$"):
            owner.xyzzy
    assert not hasattr(dsc, "__wrapped__") and not hasattr(world, "__array_interface__")


@pytest.mark.parametrize(
    "name, text",
    [
        ("init_process_group", "use init_distributed()"),
        ("get_rank", "use world().rank"),
        ("DistributedDataParallel", "use BucketReducer"),
        ("all_reduce", "it is a method of communicators, as in libdsc.world().all_reduce()"),
        ("allreduce", "on a communicator, such as libdsc.world(), use all_reduce() for arrays"),
        ("Bucketreducer", "did you mean BucketReducer?"),
    ],
)
def test_functions_of_other_libraries(name, text):
    with pytest.raises(AttributeError, match=re.escape(text)):
        getattr(dsc, name)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda world, x: world.broadcast(x, src=0), "broadcast() has no argument 'src'; use root="),
        (lambda world, x: world.reduce(x, dst=0), "reduce() has no argument 'dst'; use root="),
        (lambda world, x: world.gather(None, x, dst=0), "gather() has no argument 'dst'; use root="),
        (lambda world, x: world.scatter(x, src=0), "scatter() has no argument 'src'; use root="),
        (lambda world, x: world.scatter(x, scatter_list=[x]), "scatter() has no argument 'scatter_list'; use x="),
        (lambda world, x: world.send(x, dst=0), "send() has no argument 'dst'; use peer="),
        (lambda world, x: world.send(x, dest=0), "send() has no argument 'dest'; use peer="),
        (lambda world, x: world.recv(x, src=0), "recv() has no argument 'src'; use peer="),
        (lambda world, x: world.isend(x, dst=0), "isend() has no argument 'dst'; use peer="),
        (lambda world, x: world.irecv(x, source=0), "irecv() has no argument 'source'; use peer="),
        (lambda world, x: world.recv(x, 0, tag=3), "recv() has no argument 'tag'; there are no tags"),
        (lambda world, x: world.broadcast(x, group=world), "has no argument 'group'; call the method on the communicator of that group"),
        (lambda world, x: world.broadcast(x, xyzzy=1), "broadcast() has no argument 'xyzzy'"),
    ],
)
def test_arguments_of_other_libraries(world, call, text):
    with pytest.raises(TypeError, match=re.escape(text)):
        call(world, np.zeros(3))


def test_every_answer_names_what_exists():
    """Each name followed by a parenthesis must be a method or a function, each other name an attribute."""
    for table, owner in ((_foreign._MEMBERS, dsc.Communicator), (_foreign._FUNCTIONS, dsc)):
        for name, answer in table.items():
            assert name == name.lower()
            found = re.findall(r"(\w+)\(", answer) + re.findall(r"the attribute (\w+)", answer)
            found = [each for each in found if not hasattr(builtins, each)]
            assert found or answer[0].isupper() or "sum" in answer, answer
            for each in found:
                assert hasattr(owner, each) or hasattr(dsc.Communicator, each), answer
            assert not answer[0].isupper() or hasattr(dsc, answer), answer


def test_functions_delegate_to_methods(world):
    """A function that takes a communicator first is the communicator's method with the same arguments."""
    taken = []
    for name in dsc.__all__:
        function = getattr(dsc, name)
        if not inspect.isfunction(function):
            continue
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters or parameters[0].name != "comm":
            continue
        method = list(inspect.signature(getattr(dsc.Communicator, name)).parameters.values())
        assert [(p.name, p.default, p.kind) for p in parameters[1:]] == [(p.name, p.default, p.kind) for p in method[1:]]
        taken.append(name)
    assert {"verify_params", "broadcast_coalesced", "all_gather_object", "broadcast_tree", "average_gradients"} <= set(taken)
    x = np.ones(3)
    world.all_reduce_coalesced([x], "max")
    world.broadcast_coalesced([x], 0)
    assert world.average_gradients({"w": x})["w"] is x


def test_a_star_import_leaves_pythons_own_names_alone():
    given = {}
    exec("from libdsc import *", given)
    assert not [name for name in dsc.__all__ if hasattr(builtins, name)] and "TimeoutError" not in given
    for name in ("OverflowError", "SystemError", "TimeoutError"):
        assert issubclass(getattr(dsc, name), dsc.DscError) and getattr(dsc, name) is not getattr(builtins, name)


def test_help_begins_with_a_table_of_contents():
    shown = subprocess.run([sys.executable, "-c", "import libdsc; help(libdsc)"], capture_output=True, text=True, timeout=60)
    page = shown.stdout.partition("PACKAGE CONTENTS")[0]
    assert len(page.splitlines()) <= 60 and page.startswith("Help on package libdsc")
    words = set(re.findall(r"\w+", page))
    assert [name for name in dsc.__all__ if name not in words] == []
