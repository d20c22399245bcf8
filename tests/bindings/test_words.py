"""Messages of the library about wrong arguments use Python's names, not those of the C interface."""

import operator
import re

import numpy as np
import pytest
from compiled import API
from library_messages import messages

import libdsc as dsc
from libdsc import _words, errors

WORDS_OF_C = re.compile(r"->|\bNULL\b|\bdsc_\w+|\bn_[a-z_]+ is\b")
NOT_IN_PYTHON = {"bits of dsc_source, or 0 for all"}  # the package checks `sources` first


def test_no_message_shows_words_of_c():
    found = list(messages())
    assert len(found) > 1000 and any(WORDS_OF_C.search(text) for _, text in found)
    said = [(name, str(errors.from_code(dsc.Result.ERR_INVALID_ARG, text))) for name, text in found]
    assert [each for each in said if WORDS_OF_C.search(each[1]) and each[1] not in NOT_IN_PYTHON] == []


def named_in_errors():
    """The Python names that errors use, such as "PipeSchedule.read"."""
    yield from _words._CALLED.values()
    for text in _words._FUNCTIONS.values():
        if re.fullmatch(r"[\w.]+\(\)", text):
            yield text.removesuffix("()")


def test_names_in_errors_exist():
    classes = [dsc, dsc.Communicator, dsc.BucketReducer, dsc.Work]
    missing = {name for name in named_in_errors() if not any(exists(owner, name) for owner in classes)}
    assert missing == set()


def exists(owner, name):
    try:
        operator.attrgetter(name)(owner)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: dsc.PipeSchedule("1f1", 2, micro_batches=4), r'unknown schedule "1f1"; did you mean "1f1b".* auto\b'),
        (lambda: dsc.PipeSchedule("custom", 2, micro_batches=4), r"use PipeSchedule.custom\(\) or PipeSchedule.read\(\)$"),
        (
            lambda: dsc.PipeSchedule("deepspeed_train", 2, micro_batches=4, forward_only=True),
            'forward_only is True, expected False for schedule "deepspeed_train"',
        ),
        (
            lambda: dsc.PipeSchedule("deepspeed_train", 2, micro_batches=4, messages="at_once"),
            'messages is "at_once", expected "when_needed": schedule "deepspeed_train" places its messages itself',
        ),
        (lambda: dsc.plan_buckets([1], ["float32"], []), "limits has 0 entries, expected 1 or more"),
        (
            lambda: dsc.plan_shards([4, 4], ["float32"] * 2, 2, units=[0, 1], alone=[1]),
            r"alone\[1\] is True, expected False: units defines the units",
        ),
        (lambda: dsc.partition_layers([1, 2], 2, "even"), "^partition_layers: unknown method 'even'; expected one of: "),
    ],
)
def test_wrong_arguments_are_named_as_in_python(call, said):
    with pytest.raises((dsc.DscError, ValueError), match=said):
        call()


def test_calls_of_c_are_named_as_in_python(world):
    with pytest.raises(dsc.StateError, match="^verify_params: a batch is open .*: expected the end of batch\\(\\) first$"):
        with world.batch():
            dsc.verify_params(world, [np.zeros(2)])
    with pytest.raises(dsc.InvalidArgError, match="^BucketReducer: "):
        dsc.BucketReducer(world, [np.zeros(2)], buckets=[[0, 0]])


def test_every_name_of_c_that_is_translated_exists():
    functions = {function["name"] for function in API["functions"]}
    assert set(_words._CALLED) <= functions
    assert {name.removesuffix("()") for name in _words._FUNCTIONS} - functions == {"dsc_init_options_t"}
