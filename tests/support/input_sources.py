"""Bodies of `get_inputs` that draw in many ways; sizes are filled in for `{n}`.

`{n}` elements are drawn elsewhere than on one core, fewer are not.
"""

from __future__ import annotations

from typing import Any

SOURCES = {
    "rand": "return [torch.rand({n})]",
    "rand twice": "return [torch.rand({n}), torch.rand({n} + 7)]",
    "rand among small ones": (
        "return [torch.rand(3), torch.rand({n}), torch.rand(5), torch.rand(()), torch.rand({n})]"
    ),
    "rand shaped": "return [torch.rand(2, {n}, 3), torch.rand([{n}, 1]), torch.rand(size=({n},))]",
    "scaled": "return [torch.rand({n}) * 2 - 1, 3 + torch.rand({n}) * 0.1, -torch.rand({n})]",
    "scaled by a draw": "scale = torch.rand(()); return [torch.rand({n}) * scale, scale]",
    "scaled by a row": "return [torch.rand({n}, 3) * torch.rand(3) + torch.arange(3)]",
    "halved": "return [torch.rand({n}) / 2, torch.rand({n}) / 3]",
    "weighted sum": "return [torch.add(torch.rand({n}), torch.rand({n}), alpha=0.3)]",
    "shapes": (
        "x = torch.rand({n}, 6); "
        "return [x.T, x.reshape(3, -1), x.view(-1, 2).t().contiguous(), x[:, ::2], x[1:], x, x]"
    ),
    "permuted": "return [torch.rand({n}, 2, 3).permute(2, 0, 1), torch.rand(2, {n}).mT]",
    "expanded": "return [torch.rand({n}, 1).expand(-1, 4)]",
    "triangular": (
        "a = torch.triu(torch.rand(512, {n} // 512 + 1)); b = torch.rand({n}, 2); "
        "return [a, torch.tril(b), a.T]"
    ),
    "symmetric": "a = torch.rand(512, 512 + 0 * {n}); return [a + a.T]",
    "masked": (
        "x = torch.rand({n}); return [torch.where(x > 0.5, x, -x), x > 0.25, (x < 0.5).float()]"
    ),
    "changed in place": "x = torch.rand({n}); x.mul_(2).sub_(1); x[3] = 7; return [x]",
    "changed through a view": "x = torch.rand({n}); x[:9].fill_(0); x.view(-1)[5] = 2; return [x]",
    "diagonal": "x = torch.rand(600, {n} // 600 + 600); x.fill_diagonal_(1); return [x]",
    "sorted": "return [torch.sort(torch.rand({n})).values]",
    "softmax": "return [torch.rand({n}, 8).softmax(-1), (torch.rand({n}, 2) * 3).exp()]",
    "accumulated": "return [torch.rand({n}).cumsum(0), torch.rand({n}).sum()]",
    "normalised": "x = torch.rand({n}, 4); return [x / x.sum(-1, keepdim=True)]",
    "product": "return [torch.rand({n}, 4) @ torch.rand(4, 4)]",
    "bernoulli": "p = torch.rand({n}); return [torch.bernoulli(p), torch.rand({n}), p]",
    "randint": "return [torch.randint(0, 10, ({n},)), torch.randint(5, (3, {n})), torch.rand({n})]",
    "randint wide": "return [torch.randint(0, 2**40, ({n},)), torch.rand({n})]",
    "labels": "return [torch.rand({n}, 2), torch.randint(0, 2, ({n},)), torch.rand({n}) * 2]",
    "randn": "return [torch.randn({n}), torch.rand({n})]",
    "randn with a tail": "return [torch.randn({n} + 5), torch.rand(7), torch.randn({n} + 16)]",
    "randn scaled": "return [torch.randn(3, {n}) * 0.02 + 1]",
    "randn small and large": (
        "return [torch.randn(3), torch.randn({n}), torch.randn(5), torch.rand({n}), torch.randn(1)]"
    ),
    "normal": "return [torch.normal(1.0, 2.0, ({n},)), torch.empty({n}).normal_(2, 3)]",
    "double": "return [torch.rand({n}, dtype=torch.float64), torch.rand({n}).double()]",
    "half": (
        "return [torch.rand({n}, dtype=torch.float16), torch.rand({n}).half(), "
        "torch.rand({n}, dtype=torch.bfloat16), torch.rand({n}).bfloat16()]"
    ),
    "integers from floats": "return [(torch.rand({n}) * 100).long(), (torch.rand({n}) * 9).int()]",
    "uniform": "return [torch.empty({n}).uniform_(-1, 1), torch.rand({n})]",
    "uniform of a view": "x = torch.zeros({n}, 4); x.t().uniform_(); return [x, torch.rand({n})]",
    "like": (
        "x = torch.rand({n}, 3); return [torch.rand_like(x), torch.randn_like(x), x.new_zeros(5), "
        "torch.rand_like(x.T), torch.zeros_like(x), torch.rand_like(x[:2]), torch.ones(3) + x]"
    ),
    "own generator": (
        "g = torch.Generator().manual_seed(3); "
        "return [torch.rand({n}, generator=g), torch.rand({n}), torch.randn({n}, generator=g), "
        "torch.rand(4, generator=g)]"
    ),
    "out": "x = torch.empty({n}); torch.rand({n}, out=x); return [x, torch.rand({n})]",
    "permutation": "x = torch.rand({n}); return [x[torch.randperm({n})], torch.rand({n})]",
    "dropout": "return [torch.nn.functional.dropout(torch.rand({n}), 0.5), torch.rand({n})]",
    "other generators": (
        "import random; a = random.random(); x = torch.rand({n}); "
        "return [x * a, random.random(), torch.rand({n}) * random.random()]"
    ),
    "seeded inside": "torch.manual_seed(7); return [torch.rand({n}), torch.rand({n})]",
    "joined": "a = torch.rand({n}); return [torch.cat([a, a * 2, a]), torch.stack([a, a])]",
    "numbers": "x = torch.rand({n}); return [x, float(x[3]), x[5].item(), int(x[0] * 100)]",
    "numpy": "x = torch.rand({n}).numpy(); return [torch.from_numpy(x * 2), torch.rand({n})]",
    "nested": "return [[torch.rand({n}), torch.rand(2)], torch.rand({n})]",
    "tuple": "return (torch.rand({n}), 3, torch.rand({n}))",
    "lists": "return [torch.tensor(torch.rand({n}).tolist()[:5]), torch.rand({n})]",
    "copied": (
        "x = torch.zeros({n}); x.copy_(torch.rand({n})); y = x.clone(); y += torch.rand({n}); "
        "return [x, y]"
    ),
    "filled": "x = torch.zeros({n}, 2); x[:, 0] = torch.rand({n}); return [x]",
    "summed in place": "x = torch.rand({n}); x.cumsum_(0); return [x, torch.rand({n})]",
    "nothing": "return []",
}


def function(name: str, elements: int) -> Any:
    """Return one of them as a function."""
    names: dict[str, Any] = {}
    source = f"import torch\ndef get_inputs():\n    {SOURCES[name].format(n=elements)}\n"
    exec(source, names)
    return names["get_inputs"]
