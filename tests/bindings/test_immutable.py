"""Arrays that cannot be written, like JAX's: a replacement is always tested, JAX itself where it is installed."""

import pathlib
import sys

import numpy as np
import pytest

import libdsc as dsc

sys.path.insert(0, str(pathlib.Path(__file__).parent / "stand_in"))

from immutable import ImmutableArray  # noqa: E402

BF16, F8E4M3, F8E5M2 = (4, 16, "bfloat16"), (10, 8, "float8_e4m3fn"), (12, 8, "float8_e5m2")
ONE = 0x3F80  # the number 1 as bfloat16


def bf16(*bits):
    return ImmutableArray(np.array(bits, np.uint16), *BF16)


def refuse_memoryview(monkeypatch):
    """Makes memoryview() refuse, as jaxlib's type does. Python below 3.12 cannot define such a type."""
    from libdsc import _buffers

    def refusing(x):
        if isinstance(x, ImmutableArray):
            raise BufferError("INVALID_ARGUMENT: Buffers of type BF16 are not supported by the Python buffer protocol.")
        return memoryview(x)

    monkeypatch.setattr(_buffers, "memoryview", refusing, raising=False)


@pytest.mark.parametrize("element, unsigned", [(BF16, np.uint16), (F8E4M3, np.uint8), (F8E5M2, np.uint8)])
def test_types_without_a_letter_go_through_dlpack(world, monkeypatch, element, unsigned):
    refuse_memoryview(monkeypatch)
    x, out = ImmutableArray(np.array([1, 2, 3], unsigned), *element), np.zeros(3, unsigned)
    world.all_reduce(x, out=out, dtype=element[2])
    assert out.tolist() == [1, 2, 3]


def test_a_refusal_without_dlpack_names_the_argument(world, monkeypatch):
    from libdsc import _buffers

    def refusing(x):
        raise BufferError("not today")

    monkeypatch.setattr(_buffers, "memoryview", refusing, raising=False)
    with pytest.raises(ValueError, match="^x does not export its memory: not today"):
        world.all_reduce(object())


def test_in_place_is_refused_with_what_to_do(world):
    with pytest.raises(ValueError, match=r"^x is read-only; expected a writable array .*pass out="):
        world.all_reduce(bf16(ONE))
    with dsc.BucketReducer(world, [bf16(ONE)], sync=False) as reducer:
        reducer.begin()
        with pytest.raises(ValueError, match=r"^grad is read-only; .*accumulate\(i, grad\), then mark_ready\(i\)"):
            reducer.mark_ready(0, bf16(ONE))
        reducer.accumulate(0, bf16(ONE))
        reducer.mark_ready(0)
        reducer.finish()
        assert reducer.grad_view(0).tolist() == [ONE]


def test_a_versioned_capsule_says_that_it_is_read_only():
    from libdsc import _buffers

    x = np.arange(3.0)
    x.flags.writeable = False

    class Only:
        def __dlpack_device__(self):
            return x.__dlpack_device__()

        def __dlpack__(self, *, stream=None, max_version=None):
            return _versioned(x, self)

    with pytest.raises(ValueError, match="^x is read-only"):
        _buffers.locate(Only(), "x")
    assert _buffers.locate(Only(), "x", None, False)[:2] == (x.ctypes.data, 3)


def _versioned(x, owner):
    """Returns a DLPack 1.0 capsule that is marked as read-only."""
    import ctypes

    from device_arrays import _Tensor

    class Managed(ctypes.Structure):
        _fields_ = [
            ("version", ctypes.c_uint32 * 2),
            ("manager", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p),
            ("flags", ctypes.c_uint64),
            ("tensor", _Tensor),
        ]

    extents = (ctypes.c_int64 * 1)(x.size)
    owner.kept = managed = Managed((1, 0), None, None, 1, _Tensor(x.ctypes.data, 1, 0, 1, 2, 64, 1, extents, None, 0))
    owner.extents = extents
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(managed), b"dltensor_versioned", None)


def test_a_copy_of_a_view_keeps_its_values(world):
    with dsc.BucketReducer(world, [np.zeros(2, np.float32)]) as reducer:
        for value in (1.0, 5.0):
            reducer.begin()
            reducer.mark_ready(0, np.full(2, value, np.float32))
            reducer.finish()
            if value == 1.0:
                kept, view = reducer.grad_view(0, copy=True), reducer.grad_view(0)
        assert kept.tolist() == [1, 1] and view.tolist() == [5, 5]
        assert kept.flags.owndata and not np.shares_memory(kept, view)


def test_views_have_the_type_of_ml_dtypes_where_it_is_imported(world, monkeypatch):
    class MlDtypes:
        bfloat16 = np.dtype("V2")

    for module, expected in ((None, "uint16"), (MlDtypes, "void16")):
        if module is not None:
            monkeypatch.setitem(sys.modules, "ml_dtypes", module)
        with dsc.BucketReducer(world, [bf16(ONE)], sync=False) as reducer:
            # The array's dtype is not a numpy dtype, as with torch.
            assert reducer.grad_view(0).dtype.name == expected


def test_masked_arrays_and_strings_are_refused(world):
    for x, text in (
        (np.ma.masked_array([1.0, 2.0], [0, 1]), "^x is a masked array"),
        (np.array(["a"]), "^x contains strings"),
        ([1.0], r"^x is a list; .*numpy.asarray\(x\)"),
    ):
        with pytest.raises(TypeError, match=text):
            world.all_reduce(x)
    with pytest.raises(ValueError, match=r"^out has shape \(3, 2\); expected \(2, 3\), like x"):
        world.all_reduce(np.ones((2, 3)), out=np.ones((3, 2)))
    with pytest.raises(ValueError, match="this group has 1 rank\\)"):
        world.all_gather(np.ones(3), np.ones(2))


def test_jax(world):
    """Tests every JAX type that operations accept, and the recipe in docs/buckets.md."""
    jax = pytest.importorskip("jax", reason="the stand-in above behaves as it does")
    jnp = jax.numpy
    for name in ("int8", "uint8", "int32", "uint32", "float16", "float32", "bool", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        x = jnp.ones(5, name)
        out = np.zeros(5, x.dtype)
        world.all_reduce(x, "max", out=out)
        assert (out == np.asarray(x)).all(), name
        with pytest.raises(ValueError, match="^x is read-only"):
            world.all_reduce(x)
    params = {"w": jnp.ones(3, jnp.bfloat16), "b": jnp.zeros(2)}
    with dsc.BucketReducer(world, params, sync=False) as reducer:
        first = reducer(params)
        kept = jax.tree.map(jax.device_put, first)
        reducer(jax.tree.map(lambda x: x + 4, params))
        assert kept["w"].dtype == jnp.bfloat16 and kept["w"].tolist() == [1, 1, 1] and kept["b"].tolist() == [0, 0]
        updated = jax.tree.map(lambda p, g: p - 0.5 * g, params, first)
        assert updated["w"].tolist() == [0.5] * 3


def test_a_copy_is_no_place_for_a_gradient(world):
    with dsc.BucketReducer(world, [np.zeros(3)]) as reducer:
        reducer.begin()
        reducer.mark_ready(0, np.ones(3))
        reducer.finish()
        assert reducer.grad_view(0, copy=True).tolist() == [1, 1, 1]
        reducer.begin()
        with pytest.raises(dsc.StateError, match=r"parameter 0 has no gradient; pass the gradient to mark_ready\(0, grad\), or write it into grad_view"):
            reducer.mark_ready(0)
