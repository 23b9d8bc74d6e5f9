"""Memory that torch reads, and that neither torch nor a custom kernel has written."""

import copy
import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from kernelgym.judge.untrusted.watch import host_memory as module
from kernelgym.judge.untrusted.watch.fingerprint import fingerprint
from kernelgym.judge.untrusted.watch.host_memory import HostMemory, existing
from kernelgym.judge.untrusted.watch.operator_work import Counter, tensors_in

N = 512
BYTES = 4 * N


def seen(forward, *inputs):
    """Call a model as a watched call does; return the sizes of what was written past torch."""
    counter, found = Counter(), []
    counter.host_memory = host_memory = HostMemory(fingerprint, found.append)
    host_memory.begin(existing(forward))
    with torch.no_grad(), counter:
        result = forward(*inputs)
    host_memory.reads(tensors_in(result))
    host_memory.end()
    return found


def of_numpy(x):
    # The method of the base class, which nothing can be put in the place of.
    return super(torch.Tensor, x).numpy()


def write_into(out, x):
    of_numpy(out)[...] = np.tanh(of_numpy(x))
    return out


def into_fresh_memory(x):
    return write_into(torch.empty(N), x) * 2


def into_an_output_of_torch(x):
    return write_into(x + 1, x) * 2


def into_what_is_returned(x):
    return write_into(x * 2, x)


def into_the_input(x):
    return write_into(x, x) * 2


def by_address(x):
    out, values = torch.empty(N), np.tanh(of_numpy(x))
    ctypes.memmove(out.data_ptr(), values.ctypes.data, values.nbytes)
    return out * 2


def through_a_view(x):
    out = torch.empty(2, N // 2)
    of_numpy(out[1])[...] = np.tanh(of_numpy(x)[: N // 2])
    return out.flatten() * 2


def into_an_operand_in_place(x):
    return (x * 1).add_(write_into(torch.empty(N), x))


def into_memory_of_numpy(x):
    return torch._C._from_dlpack(np.tanh(of_numpy(x)).__dlpack__()) * 2


def into_memory_of_a_storage(x):
    storage = torch.UntypedStorage.from_buffer(np.tanh(of_numpy(x)), dtype=torch.uint8)
    return torch.empty(0).set_(storage) * 2


def into_the_values_of_a_sparse_one(x):
    values, index = torch.tanh(x), torch.arange(N)
    turned = torch.sparse_coo_tensor(index[None], values, (N,), check_invariants=False)
    return write_into(turned._values(), x) * 2


def into_what_is_laid_out_anew(x):
    return torch.ops.aten.resize(write_into(torch.empty(N), x), [2, N // 2]) * 2


def into_a_part_of_what_is_filled(x):
    out = write_into(torch.empty(N), x)
    out[:1].zero_()
    return out * 2


def into_a_resized_storage(x):
    out = x[: N // 2] + 1
    out.untyped_storage().resize_(BYTES)
    return write_into(out.set_(out.untyped_storage(), 0, (N,)), x) * 2


KEPT = torch.zeros(N)


def into_what_was_there_before(x):
    return write_into(KEPT, x) * 2


def slow(*forwards):
    """Return parameters for `make test-all`: what differs from one to the next is torch's part."""
    return [pytest.param(forward, marks=pytest.mark.slow) for forward in forwards]


@pytest.mark.parametrize(
    "forward",
    [
        *(into_fresh_memory, into_an_output_of_torch, into_the_input, by_address, through_a_view),
        *slow(
            *(into_what_is_returned, into_an_operand_in_place, into_memory_of_numpy),
            *(into_memory_of_a_storage, into_what_was_there_before),
            *(into_the_values_of_a_sparse_one, into_what_is_laid_out_anew),
            *(into_a_part_of_what_is_filled, into_a_resized_storage),
        ),
    ],
)
def test_what_is_written_past_torch_is_found_where_it_is_read(forward):
    assert seen(forward, torch.rand(N)) == [BYTES]


def test_reading_past_torch_alone_is_not_writing():
    def forward(x):
        of_numpy(x).sum()
        return x * 2

    assert not seen(forward, torch.rand(N))


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.jit.script(nn.Sequential(nn.Linear(N, N), nn.ReLU()))

    def forward(self, x):
        return self.inner(x)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(N)  # changes its running statistics as it is called

    def forward(self, x):
        return self.norm(x.view(2, -1).repeat(1, 2))


def listed(x):
    xs = [x.clone(), x.clone()]
    torch._foreach_add_(xs, 1.0)
    return torch.stack(xs)[:, [3, 1]].cumsum(1)


def resized(x):
    out = torch.empty(0)
    torch.mul(x, 2, out=out)
    out.resize_(2 * N)[N:] = x
    return out.data.set_(out.untyped_storage(), 0, (N,))


def masked(x):
    x = torch.where(x > 0.5, x, torch.tensor(0.25))
    x[x > 0.75] = 1.0
    return torch.nn.functional.dropout(x[torch.nonzero(x)].sort(0).values, 0.5)


def spectral(x):
    spectrum = torch.fft.rfft(x)
    return torch.fft.irfft(torch.view_as_complex(torch.view_as_real(spectrum).clone()).conj())


def attended(x):
    q = x.view(1, 2, 16, 16)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, q).softmax(-1).to(torch.float64)
    return nn.functional.scaled_dot_product_attention(q, q, q) + scores.float()[..., :16]


def differentiated(x):
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (leaf.exp() * leaf).sum().backward()
    return leaf.grad * 2


def sparse(x):
    return (x.view(16, -1).relu().to_sparse() @ x.view(-1, 16)).exp()


def compressed(x):
    turned = x.view(16, -1).relu().to_sparse_csr()
    return turned.values() * 2, turned.crow_indices() + turned.col_indices().sum()


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm1d(N // 8, affine=True, track_running_stats=True)

    def forward(self, x):
        x = self.norm(x.view(1, -1, 8))
        return self.norm(x) + self.norm.running_mean[:, None]


class NamesakesOfMethods(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers, self.parameters, self.modules = {}, (1, 2), None

    def forward(self, x):
        return x * 2


class Lazy(NamesakesOfMethods):
    def __init__(self):
        super().__init__()
        self.fallback = nn.LazyLinear(4)


def copied(x):
    return copy.deepcopy(x * 2).add_(1)


def grown(x):
    out = torch.empty(0)
    out.untyped_storage().resize_(BYTES)
    return out.set_(out.untyped_storage(), 0, (N,)).copy_(x) * 2


def nested(x):
    jagged = torch.nested.nested_tensor_from_jagged(x.view(-1, 2), torch.tensor([0, 3, N // 2]))
    return (jagged * 2).values()


def filled_first(x):
    storage = torch.UntypedStorage(BYTES)
    return torch.empty(0).set_(storage, 0, (N,)).copy_(x) * 2


@pytest.mark.parametrize(
    "forward",
    [
        *(nn.LSTM(16, 16, num_layers=2), nn.Conv2d(2, 3, 3), Norm(), Twice()),
        *(listed, resized, differentiated, copied),
        *slow(
            *(nn.MultiheadAttention(16, 2), nn.TransformerEncoderLayer(16, 2, 32).eval()),
            *(Scripted(), masked, spectral, attended, sparse, compressed, NamesakesOfMethods()),
            *(Lazy(), grown, nested, filled_first),
        ),
    ],
)
def test_torch_itself_is_not_taken_for_somebody_else(forward):
    x = torch.rand(N)
    shape = {nn.LSTM: (-1, 16), nn.Conv2d: (2, 16, 16), nn.MultiheadAttention: (-1, 16)}
    shape[nn.TransformerEncoderLayer] = (-1, 16)
    x = x.view(shape.get(type(forward), (N,)))
    assert not seen(forward, *((x, x, x) if isinstance(forward, nn.MultiheadAttention) else (x,)))


def test_nothing_is_kept_alive():
    host_memory = HostMemory(fingerprint, print)
    host_memory.begin([])
    tensor = torch.rand(N)
    host_memory.wrote([tensor])
    number = tensor.untyped_storage()._cdata
    assert not host_memory._prints[number][0].expired()
    del tensor
    assert host_memory._prints[number][0].expired()


def test_where_memory_cannot_be_read_nobody_is_accused():
    def fails(tensor):
        raise RuntimeError("cannot be read")

    found, x = [], torch.rand(N)
    host_memory = HostMemory(fails, found.append)
    host_memory.begin([x])
    host_memory.reads([x, torch.rand(N)])
    assert not found


@pytest.mark.parametrize("forward", [into_fresh_memory, into_the_input])
def test_where_two_threads_work_neither_is_accused(forward):
    def both(x):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(watched, x).result() * forward(x)

    def watched(x):
        with counter:  # as in all threads of a kernel's process
            return x + 1

    counter, found = Counter(), []
    counter.host_memory = host_memory = HostMemory(fingerprint, found.append)
    for paused in (False, True):
        host_memory.begin(existing(both))
        with torch.no_grad(), counter:
            counter.paused = paused
            watched(torch.rand(N)) if not paused else both(torch.rand(N))
            counter.paused = False
            result = both(torch.rand(N))
        host_memory.reads(tensors_in(result))
        host_memory.end()
    assert not found


def test_what_is_looked_at_is_bounded(monkeypatch):
    looks, found, x = [], [], torch.rand(N)
    monkeypatch.setattr(module, "_LOOKED_AT_BYTES", 10 * BYTES)
    host_memory = HostMemory(lambda tensor: looks.append(tensor), found.append)
    host_memory.begin([x])
    for _ in range(100):
        host_memory.reads([x])
    host_memory.reads([torch.rand(N)])
    assert len(looks) == 10 and not found


def test_there_is_nothing_to_find_between_calls():
    found = []
    host_memory = HostMemory(fingerprint, found.append)
    host_memory.reads([torch.rand(N)])
    host_memory.begin([])
    host_memory.end()
    host_memory.reads([torch.rand(N)])
    assert not found
