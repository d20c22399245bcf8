"""All-reduce with a residual and RMSNorm, through the Python package."""

import numpy as np
import pytest
from killed_rank import expect_named, kill_self, others_of, telling

import libdsc as dsc
from test_ranks import ranks


def given(world, dtype, shape=(2, 3, 40)):
    """Returns this rank's input, the sum of all inputs, a residual and a weight."""
    random = np.random.default_rng(5)
    inputs = random.normal(size=(world.size, *shape)).astype(dtype)
    residual, weight = random.normal(size=shape).astype(dtype), random.normal(size=shape[-1:]).astype(dtype)
    return inputs[world.rank], inputs.astype(np.float64).sum(0), residual, weight


def dense(kept, weight, epsilon):
    """Computes RMSNorm by the formula of rms_norm.h in f64."""
    kept = kept.astype(np.float64)
    return kept / np.sqrt((kept * kept).mean(-1, keepdims=True) + epsilon) * weight


def normalizes(world):
    results = []
    for dtype, accuracy in ((np.float32, 1e-5), (np.float64, 1e-13), (np.float16, 4e-3)):
        x, total, residual, weight = given(world, dtype)
        before = x.copy()
        out, kept = world.all_reduce_rms_norm(x, residual, weight, 0.25)
        assert out.dtype == kept.dtype == dtype and out.shape == kept.shape == x.shape
        np.testing.assert_array_equal(x, before)
        np.testing.assert_allclose(kept, total + residual, accuracy, accuracy)
        np.testing.assert_allclose(out, dense(kept, weight, 0.25), accuracy, accuracy / 100)
        summed, none = world.all_reduce_rms_norm(x)
        assert none is None
        np.testing.assert_allclose(summed, dense(total, 1, 1e-5), 2 * accuracy, 2 * accuracy)
        given_back = world.all_reduce_rms_norm(x, residual, weight, 0.25, out=x, residual_out=residual)
        assert given_back[0] is x and given_back[1] is residual
        np.testing.assert_array_equal(x, out)
        np.testing.assert_array_equal(residual, kept)
        results.append(out.tobytes())
    return results


def test_rows_are_normalized():
    for n in (1, 2, 3):
        found = ranks(n, normalizes)
        assert all(result == found[0] for result in found)


def takes_bf16(world):
    def bf16(values):
        return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)

    def f32(bits):
        return (bits.astype(np.uint32) << 16).view(np.float32)

    x = bf16(np.linspace(1, 2, 64).reshape(2, 32) * (world.rank + 1))
    weight = bf16(np.linspace(-1, 1, 32))
    out, kept = world.all_reduce_rms_norm(x, x, weight, dtype="bf16")
    assert out.dtype == kept.dtype == np.uint16
    np.testing.assert_allclose(f32(out), dense(f32(kept), f32(weight), 1e-5), 2**-8)
    return True


def test_bf16():
    assert ranks(1, takes_bf16) == [True]


def refuses(world):
    x, _, residual, weight = given(world, np.float32)
    with pytest.raises(ValueError, match=r"residual has shape \(3, 40\); expected \(2, 3, 40\)"):
        world.all_reduce_rms_norm(x, residual[0])
    with pytest.raises(ValueError, match=r"weight has shape \(39,\); expected \(40,\)"):
        world.all_reduce_rms_norm(x, None, weight[1:])
    with pytest.raises(TypeError, match="weight has element type float64; expected float32"):
        world.all_reduce_rms_norm(x, None, weight.astype(np.float64))
    with pytest.raises(TypeError, match="out has element type float16; expected float32"):
        world.all_reduce_rms_norm(x, out=x.astype(np.float16))
    locked = residual.copy()
    locked.flags.writeable = False
    with pytest.raises(ValueError, match=r"^residual_out is read-only; .*\(such as numpy.empty\(\), or None for a new one\)$"):
        world.all_reduce_rms_norm(x, residual, residual_out=locked)
    with pytest.raises(ValueError, match="x has no dimensions"):
        world.all_reduce_rms_norm(np.array(1.0))
    with pytest.raises(TypeError, match="epsilon is 'a'; expected a number"):
        world.all_reduce_rms_norm(x, epsilon="a")
    with pytest.raises(dsc.InvalidArgError, match="epsilon is -1, expected 1.17549e-38 to 3.40282e"):
        world.all_reduce_rms_norm(x, epsilon=-1)
    with pytest.raises(dsc.UnsupportedError, match="dtype is i32, expected f32, f64, bf16 or f16"):
        world.all_reduce_rms_norm(x.view(np.int32))
    with pytest.raises(dsc.InvalidArgError, match="output and residual overlap"):
        world.all_reduce_rms_norm(x, residual, out=residual)
    with pytest.raises(dsc.InvalidArgError, match="hidden is 0, expected 1 or more"):
        world.all_reduce_rms_norm(np.zeros((3, 0), np.float32))
    out, none = world.all_reduce_rms_norm(np.zeros((0, 40), np.float32), weight=weight)
    assert out.shape == (0, 40) and none is None
    world.all_reduce_rms_norm(x)  # the other ranks did not notice the error
    return True


def test_wrong_arguments():
    assert ranks(2, refuses) == [True] * 2


def differs(world):
    x, _, residual, weight = given(world, np.float32)
    out = np.full_like(x, 7)
    with pytest.raises(dsc.MismatchError) as told:
        world.all_reduce_rms_norm(x, residual if world.rank else None, weight, out=out)
    assert "rank 0: all_reduce(sum, f32, 240, eps 1e-05 6x40 weight" in str(told.value), told.value
    assert "rank 1: all_reduce(sum, f32, 240, eps 1e-05 6x40 residual weight" in str(told.value), told.value
    assert (out == 7).all()
    return True


def test_a_residual_on_one_rank_only():
    assert dsc.spawn(_differs, 2, timeout=60) == [True] * 2


def _differs(rank):
    return differs(dsc.init_distributed(init_timeout=30, timeout=30))


RANKS, VICTIM = 3, 1


def child():
    """The victim is killed between two calls. The other ranks are in the second call then, and it names the victim."""
    world = dsc.init_distributed(init_timeout=30, timeout=20)
    x = np.ones((300, 4096), np.float32)  # these rows need several blocks
    with telling():
        world.all_reduce_rms_norm(x)
        if world.rank == VICTIM:
            kill_self()
        world.all_reduce_rms_norm(x)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_killed_rank_is_named(hosts):
    for name, ranks_at_fault, text in others_of(VICTIM, __file__, RANKS, hosts):
        assert text.startswith("all_reduce_rms_norm: ") and ranks_at_fault == [VICTIM], (ranks_at_fault, text)
        expect_named(VICTIM, name, text)


def as_torch(world):
    torch = pytest.importorskip("torch", minversion="2.14")
    torch.manual_seed(3)
    for dtype, accuracy in ((torch.float32, 1e-5), (torch.bfloat16, 2**-7)):
        parts = torch.randn(world.size, 5, 96).to(dtype)
        residual, weight = torch.randn(5, 96).to(dtype), torch.randn(96).to(dtype)
        kept = parts.float().sum(0).to(dtype) + residual
        expected = torch.nn.functional.rms_norm(kept.float(), (96,), weight.float(), 1e-5)
        x = parts[world.rank].clone()
        out, same = world.all_reduce_rms_norm(x, residual, weight, out=x, residual_out=residual)
        assert out is x and same is residual and torch.equal(residual, kept)
        torch.testing.assert_close(out.float(), expected, rtol=accuracy, atol=1e-6)
        out, kept = world.all_reduce_rms_norm(x, residual)
        assert isinstance(out, torch.Tensor) and out.dtype == kept.dtype == dtype
    with pytest.raises(TypeError, match="residual has element type float16; expected bfloat16"):
        world.all_reduce_rms_norm(x, residual.half())
    with pytest.raises(TypeError, match="weight has element type float32; expected bfloat16"):
        world.all_reduce_rms_norm(x, residual, weight.float())
    return True


def test_as_torch():
    pytest.importorskip("torch", minversion="2.14")
    assert ranks(2, as_torch) == [True] * 2


if __name__ == "__main__":
    child()
