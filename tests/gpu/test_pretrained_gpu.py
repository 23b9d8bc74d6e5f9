"""Problems of level 4's form on a GPU: tiny models of three architectures with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelgym import Kernel, LocalEvaluator
from support import pretrained_models as tiny

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    folder: Path = tmp_path_factory.mktemp("cache")
    tiny.save_all(folder / "models", width=256, layers=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELGYM_CACHE", str(folder))
        with LocalEvaluator("cuda:0") as evaluator:
            yield evaluator


@pytest.mark.parametrize(
    ("name", "auto", "returned"),
    [
        (tiny.DECODER, "AutoModelForCausalLM", "self.model(x).logits"),
        (tiny.DECODER, "AutoModelForCausalLM", "self.model(x)"),
        (tiny.ENCODER, "AutoModel", "self.model(x, output_hidden_states=True)"),
        (tiny.BOTH, "AutoModelForSeq2SeqLM", "self.model(x)"),
    ],
)
def test_kernel_in_a_pretrained_model_is_correct_and_timed(
    judge: LocalEvaluator, name: str, auto: str, returned: str
) -> None:
    problem = tiny.problem(name, 1, auto, returned, batch=8, length=128)
    verdict = judge.evaluate(problem, Kernel(tiny.kernel(auto, returned), "triton"))
    print(name, returned, verdict.status, verdict.message, verdict.timing, verdict.custom_share)
    print(verdict.stages, [finding.code for finding in verdict.findings])
    assert verdict.correct, (verdict.message, verdict.log[-1000:])
    assert verdict.timed, [finding.message for finding in verdict.findings]


def test_kernel_that_adds_zero_to_the_logits_is_rejected(judge: LocalEvaluator) -> None:
    problem = tiny.problem(tiny.DECODER, batch=8, length=128)
    verdict = judge.evaluate(problem, Kernel(tiny.ADDS_ZERO, "triton"))
    assert verdict.status == "rejected", verdict.message
