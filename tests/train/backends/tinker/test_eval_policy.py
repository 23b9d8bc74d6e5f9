"""The tinker policy of kernelgym eval, against a service in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelgym import UsageError
from kernelgym.benchmark import evaluate
from kernelgym.benchmark.run.options import PolicyOptions
from kernelgym.testing import ScriptedEvaluator
from kernelgym_train.backends.tinker.eval_policy import TinkerEvalPolicy, make
from kernelgym_train.rollout.huggingface_policy import SamplingRule
from support import tiny
from support.evals import lines_of
from support.fake_tinker import FakeService, Store


def test_weights_of_a_service_play_a_run(words: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    tiny.model(len(words)).save_pretrained(model)
    words.save_pretrained(model)
    services: list[FakeService] = []

    def connect(url: str, limit_s: float) -> FakeService:
        assert (url, limit_s) == ("http://fake", 600.0)
        services.append(FakeService(Store()))
        return services[-1]

    policy = TinkerEvalPolicy(
        *("", str(model)),
        url="http://fake",
        sampling=SamplingRule(max_new_tokens=6),
        connect=connect,
    )
    done = evaluate(
        policy,
        **{"suite": "Synthetic", "level": 1, "limit": 2, "samples": 2, "examples": 0},
        **{"out": tmp_path / "run", "evaluator": ScriptedEvaluator()},
    )
    assert done.ended == 4 and [service.closed for service in services] == [1]
    rows = lines_of(tmp_path / "run", "generations")
    assert all(0 < row["usage"]["completion"] <= 6 for row in rows)


def test_bad_options_are_refused() -> None:
    with pytest.raises(UsageError, match="needs --model"):
        make("", PolicyOptions())
    with pytest.raises(UsageError, match="is not an address of weights"):
        make("runs/mine", PolicyOptions(model="m"))
    with pytest.raises(UsageError, match="has no use with policy 'tinker'"):
        make("", PolicyOptions(model="m", policy_device="cuda"))
    settings = make("tinker://run/sampler_weights/a", PolicyOptions(model="m")).settings
    assert settings["path"].endswith("/a") and settings["max_tokens"] == 4096
