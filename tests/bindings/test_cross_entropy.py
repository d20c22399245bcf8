"""Cross entropy over a split vocabulary, through the Python package."""

import numpy as np
import pytest

import libdsc as dsc
from test_ranks import ranks


def dense(whole, targets, smoothing=0.0, z_loss=0.0):
    """Returns losses and gradients of the whole vocabulary in f64, by the formula of cross_entropy.h."""
    x = whole.astype(np.float64)
    vocab, tokens = x.shape[-1], np.arange(len(targets))
    top = x.max(-1, keepdims=True)
    lse = top + np.log(np.exp(x - top).sum(-1, keepdims=True))
    s = smoothing * vocab / (vocab - 1)
    loss = -(1 - s) * (x - lse)[tokens, targets] - s * (x - lse).mean(-1) + z_loss * lse[:, 0] ** 2
    gradient = np.exp(x - lse) * (1 + 2 * z_loss * lse) - s / vocab
    gradient[tokens, targets] -= 1 - s
    return loss, gradient


def columns(world, vocab):
    bounds = np.cumsum([0] + [vocab // world.size + (r < vocab % world.size) for r in range(world.size)])
    return slice(bounds[world.rank], bounds[world.rank + 1])


def given(world, vocab, dtype=np.float32, tokens=6):
    random = np.random.default_rng(vocab)
    whole = (random.normal(size=(tokens, vocab)) * 3).astype(dtype)
    targets = random.integers(0, vocab, tokens)
    return whole, np.ascontiguousarray(whole[:, columns(world, vocab)]), targets


def loses(world):
    for vocab in (12, 13, 2):
        for dtype, accuracy in ((np.float32, 2e-6), (np.float64, 1e-13)):
            whole, logits, targets = given(world, vocab, dtype)
            settings = {"label_smoothing": 0.1, "z_loss": 1e-3}
            loss, entropy = world.vocab_cross_entropy(logits, targets, vocab, **settings)
            expected, gradient = dense(whole, targets, 0.1, 1e-3)
            gradient = gradient[:, columns(world, vocab)]
            assert loss.dtype == dtype and loss.shape == targets.shape
            np.testing.assert_allclose(loss, expected, accuracy)
            weights = np.linspace(-1, 1, len(targets)).astype(dtype)
            found = entropy.backward(weights)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, weights[:, None] * gradient, 0, accuracy)
            np.testing.assert_allclose(entropy.backward(), gradient, 0, accuracy)
            np.testing.assert_allclose(entropy.backward(0.5, out=logits), gradient / 2, 0, accuracy)
            np.testing.assert_allclose(logits, gradient / 2, 0, accuracy)
    return world.all_gather_object(loss.tobytes())


def test_losses_and_gradients():
    for n in (1, 2, 3):
        found = ranks(n, loses)
        assert all(loss == found[0][0] for losses in found for loss in losses)


def shapes(world):
    whole, logits, targets = given(world, 4 * world.size)
    flat, _ = world.vocab_cross_entropy(logits, targets)
    loss, entropy = world.vocab_cross_entropy(logits.reshape(2, 3, 4), targets.reshape(2, 3))
    assert loss.shape == (2, 3) and loss.ravel().tolist() == flat.tolist()
    assert entropy.backward(loss).shape == (2, 3, 4)
    none, entropy = world.vocab_cross_entropy(np.empty((0, 4), np.float32), np.empty(0, np.int64))
    assert none.shape == (0,) and entropy.backward().shape == (0, 4)
    one, _ = world.vocab_cross_entropy(logits[0], targets[0:1].reshape(()))
    assert one.shape == () and one == flat[0]
    targets[1] = -100
    loss, entropy = world.vocab_cross_entropy(logits, targets, ignore_index=-100)
    assert loss[1] == 0 and loss[0] == flat[0] and not entropy.backward()[1].any()
    return True


def test_shapes_and_ignored_tokens():
    assert ranks(2, shapes) == [True] * 2


def narrow(world):
    whole, logits, targets = given(world, 16)
    expected, gradient = dense(logits if world.size == 1 else whole, targets)
    for dtype, kind in (("f16", np.float16), ("bf16", np.uint16)):
        given_bits = logits.astype(np.float16) if dtype == "f16" else (logits.view(np.uint32) >> 16).astype(np.uint16)
        loss, entropy = world.vocab_cross_entropy(given_bits, targets, dtype=dtype)
        np.testing.assert_allclose(loss, expected, 0.02, 0.05)
        found = entropy.backward()
        assert loss.dtype == np.float32 and found.dtype == kind
        if dtype == "bf16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(found, gradient[:, columns(world, 16)], 0, 0.02)
        out = np.empty_like(given_bits)
        assert entropy.backward(out=out) is out and out.tobytes() == entropy.backward().tobytes()
    return True


def test_sixteen_bits():
    assert ranks(2, narrow) == [True] * 2


def refused(error, text, function, *arguments, **named):
    with pytest.raises(error, match=text):
        function(*arguments, **named)


def refuses(world):
    logits, targets = np.zeros((3, 4), np.float32), np.array([0, 1, 2])
    start = world.vocab_cross_entropy
    refused(ValueError, r"targets has shape \(2,\); expected \(3,\)", start, logits, targets[:2])
    refused(TypeError, r"^targets has .* int32; expected int64 \(use targets.astype\(numpy.int64\)\)$", start, logits, targets.astype(np.int32))
    held = "entries 0 to 9" if world.rank == 0 else "entries 10 to 18"
    wrong = f"logits has 4 columns; expected {10 - world.rank}, because rank {world.rank} of 2 holds {held} of a vocabulary of 19"
    refused(ValueError, wrong, start, logits, targets, 19)
    refused(ValueError, "logits is not contiguous", start, logits.T, np.array([0, 0, 0, 0]))
    refused(ValueError, "logits has no dimensions", start, np.zeros(()), np.array(1))
    refused(dsc.UnsupportedError, "dtype is i32, expected f32, f64, bf16 or f16", start, logits.view(np.int32), targets)
    refused(dsc.InvalidArgError, r"targets\[2\] is 8, expected 0 to 7", start, logits, np.array([0, 1, 8]))
    refused(dsc.InvalidArgError, r"targets\[2\] is -9223372036854775808, expected 0 to 7", start, logits, np.array([0, 1, -(2**63)]))
    refused(dsc.InvalidArgError, "label_smoothing is 1,", start, logits, targets, label_smoothing=1)
    refused(TypeError, "z_loss is 'much'; expected a number", start, logits, targets, z_loss="much")
    refused(ValueError, "vocab_size is 0", start, logits, targets, 0)
    refused(TypeError, "ignore_index is 0.5; expected an integer", start, logits, targets, ignore_index=0.5)
    loss, entropy = start(logits, targets)
    refused(ValueError, r"grad_loss has shape \(2,\); expected \(3,\)", entropy.backward, loss[:2])
    refused(TypeError, "grad_loss has element type float64; expected float32", entropy.backward, loss.astype(np.float64))
    refused(ValueError, r"out has shape \(2, 4\); expected \(3, 4\)", entropy.backward, out=logits[:2].copy())
    refused(TypeError, "out has element type float64; expected float32", entropy.backward, out=logits.astype(np.float64))
    refused(dsc.InvalidArgError, "gradient and loss_gradient overlap", entropy.backward, logits[0, :3], out=logits)
    group = world.split(0)
    targets[0] = world.rank
    refused(dsc.MismatchError, "vocab 8, targets ..., options ...", group.vocab_cross_entropy, logits, targets)
    world.barrier()
    return True


def test_refusals_name_the_argument_and_end_nothing():
    assert ranks(2, refuses) == [True] * 2


def test_tensors():
    pytest.importorskip("torch", minversion="2.14")
    assert ranks(2, tensors) == [True] * 2


def tensors(world):
    import torch

    torch.manual_seed(1)
    whole = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([1, 7, -100, 0, 4])
    options = {"ignore_index": -100, "label_smoothing": 0.1}
    expected = torch.nn.functional.cross_entropy(whole, targets, reduction="none", **options)
    expected.sum().backward()
    own = slice(4 * world.rank, 4 * world.rank + 4)
    logits = whole.detach()[:, own].contiguous()
    # PyTorch's smoothing also gives a part to the target itself
    smoothing = 0.1 * 7 / 8
    loss, entropy = world.vocab_cross_entropy(logits, targets, ignore_index=-100, label_smoothing=smoothing)
    np.testing.assert_allclose(loss, expected.detach().numpy(), 1e-12)
    gradient = torch.empty_like(logits)
    assert entropy.backward(out=gradient) is gradient
    np.testing.assert_allclose(gradient.numpy(), whole.grad[:, own].numpy(), 0, 1e-12)
    return True
