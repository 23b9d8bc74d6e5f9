"""TRL's loss, on our rows: the advantages it uses are credit's, its gradient is ours.

Every number is taken from a real training of a tiny model; nothing is mocked but the verdicts.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kernelgym.records.jsonlines import read_lines
from kernelgym.testing import ScriptedEvaluator, verdict
from kernelgym.types import Kernel, Problem, Status, Verdict
from kernelgym_train.backends.trl.settings import LOSSES
from kernelgym_train.launch.assembly import make_steps
from kernelgym_train.types import Sample
from support import tiny

pytestmark = pytest.mark.usefixtures("one_thread")


class Watched:
    """One step of a tiny training, with what went through TRL's loss."""

    def __init__(self, folder: Path, *overrides: str, script: Any = tiny.judge) -> None:
        import torch

        from kernelgym_train.backends.trl import train, trainer
        from kernelgym_train.run.runlog import RunLog
        from kernelgym_train.run.training import run_stretches

        settings = tiny.config(
            # Plain descent with rate 1: what the weights move by is the gradient.
            *("optimiser.steps=1", "optimiser.max_grad_norm=1e9", "run.save_every=1000"),
            *overrides,
        )
        log = RunLog.create(folder, settings.model_dump(), {})
        words = tiny.tokenizer()
        judge = ScriptedEvaluator(script, ruleset="kernelbench")
        steps = make_steps(settings, tuple(tiny.problems(6)), judge, log=log)
        self.model = tiny.model(len(words))
        self.batches: list[dict[str, Any]] = []
        self.samples: tuple[Sample, ...] = ()
        self.gradients: dict[str, Any] = {}
        watched = self

        class Trainer(trainer.KernelTrainer):
            def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
                watched.batches.append(inputs)
                return super()._compute_loss(model, inputs)

            def roll_out(self, count: int) -> dict[str, Any]:
                out = super().roll_out(count)
                watched.samples = self._source._taken.credit.samples
                return out

            def _clip_grad_norm(self, model: Any) -> Any:
                found = super()._clip_grad_norm(model)
                for name, weight in model.named_parameters():
                    if weight.grad is not None:  # of the first update, if there are several
                        watched.gradients.setdefault(name, weight.grad.detach().clone())
                return found

        original = trainer.KernelTrainer
        trainer.KernelTrainer = Trainer
        self.start = {n: w.detach().clone() for n, w in self.model.named_parameters()}
        try:
            run_stretches(settings, log, steps, lambda done: train.train(done, self.model, words))
        finally:
            trainer.KernelTrainer = original
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                weight.copy_(self.start[name])

    def expected(self) -> dict[str, Any]:
        """The gradient of -sum(weight * advantage * logp), sample by sample, without TRL."""
        import torch

        self.model.zero_grad()
        for sample in self.samples:
            ids = torch.tensor([[*sample.prompt_ids, *sample.ids]])
            logits = self.model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1]
            logp = logits.log_softmax(-1).gather(1, torch.tensor(sample.ids)[:, None])
            (-sample.weight * sample.advantage * logp.sum()).backward()
        found = {n: w.grad.clone() for n, w in self.model.named_parameters() if w.grad is not None}
        self.model.zero_grad()
        return found


def relative_gap(one: dict[str, Any], other: dict[str, Any]) -> float:
    import torch

    assert one.keys() == other.keys()
    apart = torch.cat([(one[n] - other[n]).flatten() for n in one]).norm()
    return float(apart / torch.cat([other[n].flatten() for n in other]).norm())


@pytest.fixture(scope="module")
def token_run(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched(tmp_path_factory.mktemp("token") / "run")


def test_the_advantages_in_trls_loss_are_credits(token_run: Watched) -> None:
    rows = [
        (tuple(ids[mask.bool()].tolist()), float(advantage))
        for batch in token_run.batches
        for ids, mask, advantage in zip(
            batch["completion_ids"], batch["completion_mask"], batch["advantages"], strict=True
        )
    ]
    assert len(rows) == 16, "every row went through the loss once"
    fillers = [row for row in rows if row == ((1,), 0.0)]
    assert len(fillers) >= 16 - len(token_run.samples)
    found = sorted(row for row in rows if row not in fillers)
    wanted = sorted((sample.ids, sample.advantage) for sample in token_run.samples)
    assert len({advantage for _, advantage in wanted}) > 2, "there is something to compare"
    for (ids, advantage), (own_ids, own) in zip(found, wanted, strict=True):
        assert ids == own_ids
        assert advantage == pytest.approx(own, abs=1e-6)


def test_rows_of_a_like_length_are_together_and_cut_to_their_own(token_run: Watched) -> None:
    longest = []
    for batch in token_run.batches:
        lengths = (batch["prompt_mask"].sum(-1) + batch["completion_mask"].sum(-1)).tolist()
        longest.append(max(lengths))
        assert batch["prompt_mask"].sum(-1).max() == batch["prompt_ids"].size(1)
        answer = int(batch["completion_mask"].sum(-1).max())
        assert max(2, answer) == batch["completion_ids"].size(1)
    assert longest == sorted(longest)


def test_rows_are_scored_by_length_as_each_would_be_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from trl import GRPOTrainer

    original, scored = GRPOTrainer._get_per_token_logps_and_entropies, []

    def recorded(self: Any, model: Any, ids: Any, *rest: Any, **more: Any) -> Any:
        if not torch.is_grad_enabled():
            scored.append(tuple(ids.shape))
        return original(self, model, ids, *rest, **more)

    monkeypatch.setattr(GRPOTrainer, "_get_per_token_logps_and_entropies", recorded)
    run = Watched(tmp_path / "run", "optimiser.updates_per_step=2")
    assert sum(rows for rows, _ in scored) == 16, "every row was scored once"
    widest = max(width for _, width in scored)
    assert sum(rows * width for rows, width in scored) < 16 * widest
    compared = 0
    for batch in run.batches:
        for row in range(len(batch["prompt_ids"])):
            read = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
            mask = batch["completion_mask"][row].bool()
            answer = batch["completion_ids"][row][mask]
            with torch.no_grad():
                logits = run.model(input_ids=torch.cat([read, answer])[None]).logits[0]
            alone = logits[len(read) - 1 : -1].log_softmax(-1).gather(1, answer[:, None])[:, 0]
            torch.testing.assert_close(
                batch["old_per_token_logps"][row][mask], alone, rtol=1e-4, atol=1e-5
            )
            compared += len(alone)
    assert compared > 50


def test_the_entropy_that_is_logged_is_of_answers_not_of_fillers(tmp_path: Path) -> None:
    import torch

    def lenient(problem: Problem, kernel: Kernel) -> Verdict:
        return verdict(Status.CORRECT if "=" in kernel.source[:40] else Status.WRONG)

    run = Watched(tmp_path / "run", "optimiser.micro_batch=2", script=lenient)
    each, alone = [], 0
    for batch in run.batches:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        with torch.no_grad():
            logits = run.model(input_ids=ids, attention_mask=seen).logits
        logits = logits[:, batch["prompt_ids"].size(1) - 1 : -1]
        entropies = torch.distributions.Categorical(logits=logits).entropy()
        mask = batch["completion_mask"] * batch["tool_mask"]
        alone += not mask.any()
        if mask.any():
            each.append(float((entropies * mask).sum() / mask.sum()))
    assert alone, "a micro-batch holds nothing but fillers"
    (logged,) = [row for _, row in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert logged["train/entropy"] == pytest.approx(sum(each) / len(each), rel=1e-4)


def test_the_gradient_is_that_of_credits_loss(token_run: Watched) -> None:
    assert relative_gap(token_run.gradients, token_run.expected()) < 1e-4


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(name, marks=() if name == "grpo" else pytest.mark.slow)
        for name in LOSSES
        if name not in ("dapo", "cispo")
    ],
)
def test_it_is_under_every_loss_of_trl(loss: str, tmp_path: Path) -> None:
    run = Watched(tmp_path / "run", f"optimiser.loss={loss}")
    assert relative_gap(run.gradients, run.expected()) < 1e-4


def test_cispos_ratio_is_not_clipped_on_policy(tmp_path: Path) -> None:
    run = Watched(tmp_path / "run", "optimiser.loss=cispo")
    assert relative_gap(run.gradients, run.expected()) < 1e-4


@pytest.mark.parametrize(
    ("normaliser", "estimator"),
    [
        ("sequence", "kevin"),
        pytest.param("constant", "dr_grpo", marks=pytest.mark.slow),
        pytest.param("sequence", "dr_grpo", marks=pytest.mark.slow),
        pytest.param("constant", "kevin", marks=pytest.mark.slow),
    ],
)
def test_it_is_for_every_normaliser(normaliser: str, estimator: str, tmp_path: Path) -> None:
    run = Watched(
        tmp_path / "run",
        f"credit.normaliser={normaliser}",
        f"credit.estimator={estimator}",
        "env.stop=never",
        "optimiser.micro_batch=8",
    )
    weights = {sample.weight for sample in run.samples}
    assert len(weights) == (
        1 if normaliser == "constant" else len({len(s.ids) for s in run.samples})
    )
    assert relative_gap(run.gradients, run.expected()) < 1e-4


def test_a_wrong_weight_would_show(token_run: Watched) -> None:
    """The comparison above can fail: another normaliser's weights are far away."""
    true = token_run.samples
    even = 1.0 / (len(true) * 8)
    token_run.samples = tuple(
        dataclasses.replace(sample, weight=even if i % 2 else 2 * even)
        for i, sample in enumerate(true)
    )
    try:
        assert relative_gap(token_run.gradients, token_run.expected()) > 1e-2
    finally:
        token_run.samples = true


def test_two_updates_a_step_see_all_rows_once(tmp_path: Path) -> None:
    import torch

    run = Watched(tmp_path / "run", "optimiser.updates_per_step=2")
    assert len(run.batches) == 4
    assert sum(len(batch["advantages"]) for batch in run.batches) == 16
    assert "old_per_token_logps" in run.batches[0], "the second update is off policy, and known so"
    first = {
        tuple(ids[mask.bool()].tolist())
        for batch in run.batches[:2]
        for ids, mask in zip(
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
            strict=True,
        )
    }
    assert len({(*s.prompt_ids, *s.ids) for s in run.samples}) == len(run.samples)
    mine = [s for s in run.samples if (*s.prompt_ids, *s.ids) in first]
    assert 0 < len(mine) < len(run.samples), "the short ones are not all in the first update"
    # Half of the rows, twice their weight: each update is as long as one over all rows would be.
    run.samples = tuple(dataclasses.replace(s, weight=2 * s.weight) for s in mine)
    assert relative_gap(run.gradients, run.expected()) < 1e-4
