"""How much of the reference's work is left to torch: the same work in other words is not gone."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kernelgym.judge.evidence.torch_share import TorchWork, torch_share
from kernelgym.judge.untrusted.watch.operator_work import COPIES, JOINS, Counter

X = torch.randn(6, 4, 32, 16)
W, B = torch.randn(8, 16), torch.randn(8)


def work(program, *arguments):
    with torch.no_grad(), Counter() as counter:
        program(*arguments)
    return TorchWork.of(counter)


def left(program, *arguments):
    """Return a kernel's work, as it is believed: with what is only estimated."""
    with torch.no_grad(), Counter() as counter:
        program(*arguments)
    done = counter.work
    return TorchWork(dict(done.bytes), done.products + done.estimated, done.elements)


def share_left(reference, kernel, *arguments):
    return torch_share(work(reference, *arguments), left(kernel, *arguments))


def share(reference, kernel, *arguments):
    return torch_share(work(reference, *arguments), work(kernel, *arguments))


def softmax(x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def layer_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)


def tanh_gelu(x):
    return 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3))))


def attention(x):
    return softmax(x @ x.transpose(-2, -1) * 0.25) @ x


@pytest.mark.parametrize(
    "one, other",
    [
        (F.silu, lambda x: x * torch.sigmoid(x)),
        (F.softmax, softmax),
        (lambda x: F.layer_norm(x, (16,)), layer_norm),
        (lambda x: F.gelu(x, approximate="tanh"), tanh_gelu),
        (lambda x: F.scaled_dot_product_attention(x, x, x), attention),
        (lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: softmax(x @ x.mT) @ x),
        (lambda x: F.linear(x, W, B), lambda x: x @ W.T + B),
        (lambda x: torch.relu(x) * 2, lambda x: x.relu().mul_(2)),
        (lambda x: F.mse_loss(x, x.flip(0)), lambda x: ((x - x.flip(0)) ** 2).mean()),
        (lambda x: torch.cat([x, x]), lambda x: x.new_empty(12, 4, 32, 16)[:6].copy_(x)),
        (lambda x: x - 1, lambda x: x + -1),
        (lambda x: (x @ W.T).relu(), lambda x: F.linear(x, W).clamp(min=0)),
    ],
)
def test_the_same_work_in_other_words_is_not_gone(one, other):
    if one.__name__ == "softmax":
        one = lambda x: F.softmax(x, dim=-1)  # noqa: E731
    assert share(one, other, X) > 0.99
    if "cat" not in one.__code__.co_names:  # a copy of a half is no `cat`
        assert share(other, one, X) > 0.99


@pytest.mark.parametrize(
    "reference, left",
    [
        (lambda x: F.linear(x, W, B), lambda x: x @ W.T),
        (lambda x: F.linear(x, W).relu(), lambda x: F.linear(x, W)),
        (lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: (x @ x.mT) @ x),
        (lambda x: F.layer_norm(F.linear(x, W), (8,)), lambda x: F.layer_norm(x[..., :8], (8,))),
        (lambda x: torch.cat([x, x]).relu(), lambda x: torch.cat([x, x])),
        (lambda x: torch.cat([x, x]).relu(), lambda x: x.repeat(2, 1, 1, 1)[:3].relu()),
        (lambda x: x.transpose(1, 2).contiguous(), lambda x: x.transpose(1, 2)),
        (lambda x: F.linear(x, W), lambda x: x.relu_()),
        (lambda x: F.softmax(x, -1), lambda x: x.amax(-1)),
        (lambda x: x.relu(), lambda x: torch.empty_like(x).copy_(x).contiguous().view(-1)),
    ],
)
def test_work_that_is_replaced_is_gone(reference, left):
    assert share(reference, left, X.clone()) < 0.99


def test_views_allocations_and_draws_count_nothing():
    seen = work(lambda x: (x[1:].view(-1).t(), torch.rand(3), torch.zeros_like(x)), X)
    assert not seen.bytes and not seen.products and not seen.elements


def test_products_are_counted_by_their_shapes():
    assert work(lambda x: x @ W.T, X).products == 2 * X.numel() * 8
    image, filters = torch.randn(2, 3, 9, 9), torch.randn(5, 3, 3, 3)
    assert work(lambda i: F.conv2d(i, filters), image).products == 2 * 2 * 5 * 49 * 27
    scores = 6 * 4 * 32 * 32
    assert work(lambda x: F.scaled_dot_product_attention(x, x, x), X).products == 4 * scores * 16


COUNTS = torch.randint(0, 1000, (64, 128))
SECOND = torch.ones(64, 128, dtype=torch.int64)


@pytest.mark.parametrize(
    "reference, kernel, arguments",
    [
        (lambda n: n.sum(1), lambda n: n.int().sum(1), (COUNTS,)),
        (lambda n: n.sum(1), lambda n: n.short().sum(1), (COUNTS,)),
        (
            lambda n: n.sum(1),
            lambda n: n.new_zeros(64, 1, dtype=torch.int32).index_add_(
                1, torch.zeros(128, dtype=torch.int32), n.int()
            ),
            (COUNTS,),
        ),
        (
            lambda n, m: (n + m).relu(),
            lambda n, m: (n.int() + m.int()).clamp(min=0).long(),
            (COUNTS, SECOND),
        ),
        (lambda x: torch.exp(x), lambda x: torch.exp(x.half()).float(), (X,)),
    ],
)
def test_a_narrower_type_is_no_less_work(reference, kernel, arguments):
    assert share(reference, kernel, *arguments) > 0.99


@pytest.mark.parametrize(
    "reference, left",
    [
        (lambda x: F.linear(x, W, B).relu(), lambda x: (x.bfloat16(), W.bfloat16())),
        (lambda x: F.linear(x, W, B).relu(), lambda x: x.bfloat16() @ W.bfloat16().T),
        (lambda x: x.bfloat16() * 2, lambda x: x.bfloat16()),
        (lambda x: x.half().exp() + x.half(), lambda x: x.half().exp()),
        (lambda x: x.long().sum(-1), lambda x: x.long().int()),
    ],
)
def test_casts_to_a_narrower_type_for_a_kernel_are_free(reference, left):
    assert share(reference, left, X) < 0.9


def test_two_rows_in_one_of_complex_numbers_are_no_less():
    rows, right = torch.randn(8, 16), torch.randn(16, 8)
    packed = lambda x: torch.complex(x[:4], x[4:]) @ right.to(torch.complex64)  # noqa: E731
    assert share_left(lambda x: x @ right, packed, rows) > 0.99


def test_rank_one_updates_are_a_product():
    right = torch.randn(16, 8)

    def updates(x):
        out = torch.zeros(x.shape[0], 8)
        for k in range(16):
            out.addr_(x[:, k], right[k])
        return out

    assert share_left(lambda x: x @ right, updates, torch.randn(24, 16)) > 0.99


def test_a_triangular_system_is_a_product():
    lower = torch.randn(32, 32).tril(-1) + torch.eye(32)
    solve = lambda y: torch.linalg.solve_triangular(lower, y, upper=False)  # noqa: E731
    assert share_left(lambda y: lower @ y, solve, torch.randn(32, 32)) > 0.99


def test_distances_are_their_differences_squares_and_sums():
    def written(x):
        return ((x[:, None] - x) ** 2).sum(-1).sqrt()

    apart = lambda x: torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")  # noqa: E731
    assert share_left(written, apart, torch.randn(40, 32)) > 0.99


@pytest.mark.parametrize("layer", [torch.nn.LSTM(16, 16), torch.nn.GRU(16, 16)])
def test_a_layer_that_does_not_tell_what_it_does_is_gone_only_if_it_is(layer):
    x = torch.randn(6, 4, 16)
    assert share_left(lambda x: torch.relu(x @ x.mT) @ x, lambda x: layer(x)[0], x) > 0.99
    head = torch.randn(16, 32)
    assert share_left(lambda x: layer(x)[0] @ head, lambda x: layer(x)[0], x) < 0.9


def test_a_reference_is_not_believed_what_only_a_kernel_could_have_done():
    x = torch.randn(64, 16)

    def by_products(x):
        squares = (x * x).sum(1)
        return (squares[:, None] + squares - 2 * x @ x.T).clamp_min(0).sqrt()

    assert share_left(lambda x: torch.cdist(x, x), by_products, x) > 0.99


def test_products_of_unlisted_operators_are_estimated():
    left, right = torch.randn(6, 5), torch.randn(5, 7)
    rows = torch.arange(5).expand(6, 5).contiguous()
    found = []
    for program in (
        lambda: F.embedding_bag(rows, right, per_sample_weights=left, mode="sum"),
        lambda: torch.ops.aten.convolution_backward(
            left[:, :, None, None],
            left.new_empty(6, 7, 1, 1),
            right[:, :, None, None],
            None,
            *([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False]),
        ),
    ):
        with torch.no_grad(), Counter() as counter:
            program()
        found.append(counter.work.estimated)
    assert found == [pytest.approx(2 * 6 * 5 * 7, rel=0.2)] * 2


def test_unlisted_convolutions_are_estimated():
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3)

    def unlisted(x):
        return torch.ops.aten._slow_conv2d_forward(x, weight, [3, 3], None, [1, 1], [1, 1])

    listed = work(lambda x: F.conv2d(x, weight, padding=1), x).products
    assert left(unlisted, x).products == listed == 2 * (2 * 6 * 9 * 8) * (4 * 3 * 3)


def test_operators_are_seen_in_inference_mode_and_behind_composite_ones():
    def inferred(x):
        with torch.inference_mode():
            return F.linear(x, W, B)

    assert work(inferred, X) == work(lambda x: F.linear(x, W, B), X)


NAMES = st.sampled_from(["mm", "add", "gelu", "_softmax", "cat", "clone", "attention_scale"])
WORKS = st.builds(
    TorchWork,
    st.dictionaries(NAMES, st.integers(1, 10**12).map(float)),
    st.just(0.0),
    st.just(0.0),
)


@given(WORKS)
def test_nothing_gone_is_a_share_of_one_and_everything_gone_of_zero(done):
    assert torch_share(done, TorchWork({}, 0.0, 0.0)) == 0.0
    counted = {k for k in done.bytes if k != "attention_scale"}
    if counted - COPIES or counted & COPIES == counted != set():
        assert torch_share(done, done) >= 1.0 or not counted - COPIES - JOINS


@given(WORKS, WORKS, NAMES, st.integers(1, 10**12))
def test_more_torch_never_makes_the_share_smaller(reference, kernel, name, more):
    larger = TorchWork(kernel.bytes | {name: kernel.bytes.get(name, 0.0) + more}, 0.0, 0.0)
    before, after = torch_share(reference, kernel), torch_share(reference, larger)
    assert after >= before * (1 - 1e-9) or name in COPIES | JOINS


@given(st.dictionaries(st.text(max_size=8), st.floats(0, 1e9), max_size=5))
def test_dear_operators_never_count_less(moved):
    reference = TorchWork({"relu": 1000.0, "mul": 10.0}, 0.0, 0.0)
    kernel = TorchWork(moved, 0.0, 0.0)
    cheap = torch_share(reference, kernel)
    assert torch_share(reference, kernel, unknown_is_dear=True) >= cheap


def test_products_in_another_guise_do_not_pass_for_few_operations():
    reference = TorchWork({"product": 3e6}, 1e9, 0.0)
    for name in ("linalg_inv_ex", "linalg_matrix_exp", "_fft_r2c", "an_operator_of_tomorrow"):
        disguised = TorchWork({name: 1e6, "mul": 1e6}, 0.0, 1e6)
        assert torch_share(reference, disguised, unknown_is_dear=True) > 1.0
    for name in ("im2col", "_adaptive_avg_pool2d", "sort", "index_put", "native_layer_norm"):
        moving = TorchWork({name: 1e6}, 0.0, 1e6)
        assert torch_share(reference, moving, unknown_is_dear=True) < 0.01
