"""Problems of level 4's form, judged on the CPU: tiny transformers models with random weights."""

from __future__ import annotations

import json
import shutil
import types
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
import torch

from kernelgym import RULESETS, Kernel, LocalEvaluator, ProblemError, UsageError, Verdict
from kernelgym.judge.compare.structure import describe_shape_of, structure_problem
from kernelgym.judge.memory.arena import encode
from kernelgym.judge.tensors import plain_output, tensors_of
from kernelgym.judge.untrusted.buffers import Buffers
from kernelgym.judge.untrusted.outputs import describe, tensors_in
from kernelgym.types import Problem
from support import pretrained_models as tiny

pytest.importorskip("transformers")
STRICT = RULESETS["strict"]
LOGITS = "self.model(x).logits"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder, which holds the three models."""
    made = tmp_path_factory.mktemp("cache")
    tiny.save_all(made / "models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELGYM_CACHE", str(made))
        yield made


@pytest.fixture(scope="module")
def judge(folder: Path) -> Iterator[LocalEvaluator]:
    with LocalEvaluator() as evaluator:
        yield evaluator


def judged(judge: LocalEvaluator, problem: Problem, source: str) -> Verdict:
    return judge.evaluate(problem, Kernel(source, "triton"))


@pytest.mark.slow
def test_kernels_in_a_decoder_are_judged_without_network_and_adding_zero_is_refused(
    judge: LocalEvaluator,
) -> None:
    # Loading a model relies on contexts of devices, within which torch.tensor makes no CPU tensor.
    source = tiny.kernel().replace(
        "        super().__init__()\n        self.model",
        "        super().__init__()\n        with torch.device('meta'):\n"
        "            assert torch.tensor([1.0]).is_meta\n        self.model",
    )
    honest = judged(judge, tiny.problem(tiny.DECODER), source)
    assert honest.correct, honest.message
    assert honest.custom_share is not None and 0.1 < honest.custom_share < 0.9
    lazy = judged(judge, tiny.problem(tiny.DECODER), tiny.ADDS_ZERO)
    assert lazy.status == "rejected" and lazy.findings[0].code == "decoy_kernel"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "auto", "returned"),
    [
        (tiny.DECODER, "AutoModelForCausalLM", "self.model(x)"),
        (tiny.ENCODER, "AutoModel", "self.model(x, output_hidden_states=True)"),
        (tiny.ENCODER, "AutoModelForCausalLM", LOGITS),
        (tiny.BOTH, "AutoModelForSeq2SeqLM", "self.model(x)"),
        (tiny.BOTH, "AutoModelForSeq2SeqLM", "self.model(x, return_dict=False)"),
    ],
)
def test_output_of_an_architecture_is_compared_by_field(
    judge: LocalEvaluator, name: str, auto: str, returned: str
) -> None:
    problem = tiny.problem(name, 2, auto, returned)
    found = judged(judge, problem, tiny.kernel(auto, returned))
    assert found.correct, (found.message, found.log[-500:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "length"),
    [("tiny/neo", 24), ("tiny/opt", 24), ("tiny/bigbird", 128), ("tiny/reformer", 32)],
)
def test_other_architectures_of_level_4_can_be_judged(
    judge: LocalEvaluator, folder: Path, name: str, length: int
) -> None:
    """Local attention, weights in fp16, sparse blocks (from 113 tokens on), hashed attention."""
    if not (folder / "models" / "models--tiny--reformer").exists():
        tiny.save_others(folder / "models")
    found = judged(judge, tiny.problem(name, 9, length=length), tiny.kernel())
    assert found.correct, (found.message, found.log[-500:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("out.past_key_values.layers[1].values.mul_(1.001)", "output['past_key_values'][1][1]"),
        ("out['logits'] = out.logits + 1e-3", "output['logits']"),
        ("out = (out.logits, out.past_key_values)", "is a sequence, the reference gives a mapping"),
    ],
)
def test_wrong_field_of_a_model_output_is_named(
    judge: LocalEvaluator, spoil: str, told: str
) -> None:
    problem = tiny.problem(tiny.DECODER, 3, returned="self.model(x)")
    source = tiny.kernel().replace(
        "        return self.model(x).logits",
        f"        out = self.model(x)\n        {spoil}\n        return out",
    )
    found = judged(judge, problem, source)
    assert found.status == "wrong" and told in found.message, found.message


@pytest.mark.slow
def test_constants_of_a_checkpoint_are_replaced_and_its_other_weights_are_not(
    judge: LocalEvaluator,
) -> None:
    """Packing what was trained is legal; leaving out a norm's gamma of ones is wrong."""
    problem = tiny.problem(tiny.DECODER, 4)
    packed = tiny.kernel().replace(
        "        return self.model(x).logits",
        "        hidden = self.model.transformer(x).last_hidden_state\n"
        "        return torch.nn.functional.linear(hidden, self.packed)",
    )
    packed = packed.replace(
        "        for module in list",
        "        self.packed = self.model.lm_head.weight.detach().clone()\n"
        "        for module in list",
    )
    assert judged(judge, problem, packed).correct
    found = judged(judge, problem, tiny.kernel().replace("scale * w + b", "scale"))
    assert found.status == "wrong", found.message


@pytest.mark.slow
def test_token_ids_stay_integers_under_both_rulesets(folder: Path) -> None:
    source = tiny.kernel().replace(
        "    def forward(self, x):\n        return self",
        "    def forward(self, x):\n        assert x.dtype == torch.int64\n        return self",
    )
    with LocalEvaluator(ruleset="kernelbench") as judge:
        found = judged(judge, tiny.problem(tiny.DECODER, 5), source)
    assert found.correct, found.message


@pytest.mark.slow
def test_environment_of_level_4_plays_a_problem_of_a_checkout(
    judge: LocalEvaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "level4").mkdir()
    (tmp_path / "level4" / "1_tiny-gpt2.py").write_text(tiny.problem(tiny.DECODER).source)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    env = gymnasium.make("kernelgym:KernelBench-L4-SingleTurn-v0", evaluator=judge)
    _, info = env.reset(seed=1)
    assert info["problem_id"] == "KernelBench/L4/1"
    answer = f"<KERNEL>\n```python\n{tiny.kernel()}\n```\n</KERNEL>"
    *_, info = env.step(answer)
    assert info["verdict"].correct, info["verdict"].message
    env.close()


def test_cache_of_a_transformers_model_is_read_alike_on_both_sides() -> None:
    from transformers import DynamicCache, EncoderDecoderCache

    caches = [DynamicCache(), DynamicCache()]
    for number, cache in enumerate(caches):
        for layer in range(2):
            cache.update(torch.full((1, 2, 3, 4), 1.0 * number), torch.ones(1, 2, 3, 4), layer)
    for output in (caches[0], {"past": EncoderDecoderCache(*caches), "logits": torch.ones(3)}):
        found, wanted = tensors_in(output), tensors_of(plain_output(output))
        assert len(found) == len(wanted) > 2 and all(map(torch.equal, found, wanted))
        claimed = describe(output, lambda tensor: {"strides": list(tensor.stride())})
        assert structure_problem(claimed, describe_shape_of(plain_output(output)), STRICT) == ""


def test_cache_whose_class_would_compute_when_read_is_refused() -> None:
    from transformers import DynamicCache

    def compute(self: object) -> dict[str, object]:
        raise AssertionError("the candidate's code ran while its output was described")

    fields = {"__dict__": property(compute), "__module__": DynamicCache.__module__}
    made = type("DynamicCache", (DynamicCache,), fields)
    assert "other" in describe(made.__new__(made), lambda tensor: {})


def test_configuration_reaches_the_candidate_as_it_is() -> None:
    from transformers import GPT2Config

    given = GPT2Config(n_layer=3, attn_implementation="eager", id2label={0: "a", 1: "b"})
    buffers = Buffers(types.ModuleType("cuda_ipc"), describe, torch.device("cpu"))
    sent = json.loads(json.dumps(encode(given, None)))
    found = buffers.decode(sent)
    assert type(found) is GPT2Config and found.to_dict() == given.to_dict()
    assert found._attn_implementation == "eager"


def test_problem_whose_model_is_missing_is_refused_with_the_command(
    judge: LocalEvaluator,
) -> None:
    with pytest.raises(
        ProblemError, match=r"loads gpt2 .* `kernelgym fetch Tiny/L4/6` downloads it"
    ):
        judged(judge, tiny.problem("gpt2", 6), tiny.kernel())


def test_budget_below_the_copies_of_the_weights_refuses_before_anything_loads(
    folder: Path,
) -> None:
    with (
        LocalEvaluator(memory_bytes=1 << 30) as judge,
        pytest.raises(UsageError, match="memory budget"),
    ):
        judged(judge, tiny.problem(tiny.DECODER, 7), tiny.kernel())


@pytest.mark.slow
def test_logits_beyond_the_budget_are_refused_before_anything_loads(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs are counted from the configuration alone: the weights here cannot be read."""
    shutil.copytree(folder / "models", tmp_path / "models")
    weights = next((tmp_path / "models").glob("models--tiny--gpt2/snapshots/*/*.safetensors"))
    weights.write_bytes(b"no weights")
    monkeypatch.setenv("KERNELGYM_CACHE", str(tmp_path))
    problem = tiny.problem(tiny.DECODER, 8, batch=4096, length=512)  # logits of 1.8 GB
    with (
        LocalEvaluator(memory_bytes=2e9) as judge,
        pytest.raises(UsageError, match=r"takes at least 4[.]6 GB"),
    ):
        judged(judge, problem, tiny.kernel())
