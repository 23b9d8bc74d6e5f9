"""A Tinker service in this process: one logit a token, learned by momentum, kept in a dictionary.

It has the interface of `kernelgym_train.backends.tinker.service.Service`. `Store` is what outlives
a connection, as a server's database does.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelgym import UsageError
from kernelgym_train.backends.tinker.datums import DatumRow
from kernelgym_train.backends.tinker.pauses import Pauses
from kernelgym_train.backends.tinker.service import Answered, ServiceTimeout, Updated, within

WORDS = range(4, 12)
"""Ids of the tiny tokenizer's lines, which are all that is sampled, beside its end."""
END = 1

Fault = int | str
"""A status of HTTP; ``poisoned``; ``unanswered``: done, but no answer comes; ``ignored``: not done
either; ``late``: done once its caller has given up."""


class StatusError(Exception):
    """An HTTP error as the SDK raises it."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


async def carried_out(fault: Fault | None, work: Callable[[], Any], limit_s: float) -> Any:
    """Do a request's work with a fault."""
    if isinstance(fault, int):
        raise StatusError(fault)
    if fault == "poisoned":
        raise RuntimeError("a previous request failed; this client is poisoned")
    if fault == "late":
        asyncio.get_running_loop().call_later(1.5 * limit_s, work)
    if fault in (None, "unanswered"):
        found = work()
        if fault is None:
            return found
    return await asyncio.get_running_loop().create_future()


@dataclass
class Store:
    """What a server keeps, and what was asked of it."""

    kept: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Logits and momentum by path."""
    updates: list[tuple[tuple[DatumRow, ...], dict[str, Any]]] = field(default_factory=list)
    """Rows of each update, and what it was told beside them."""
    created: list[tuple[str, int, int]] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    began: list[list[float]] = field(default_factory=list)
    """Momentum that each learner from a checkpoint began with."""
    saved: list[tuple[str, int]] = field(default_factory=list)
    snapshots: int = 0
    scored: list[tuple[int, int]] = field(default_factory=list)
    """Tokens of prompt and answer of each request for log-probabilities."""
    unscored: int = 0
    """How many of the next such requests fail."""
    deleted: list[str] = field(default_factory=list)
    undeletable: bool = False
    """Whether it refuses to delete."""
    lacks: tuple[str, ...] = ()
    """Losses that it does not have."""
    tried: list[str] = field(default_factory=list)
    """Losses that it was asked about."""
    learned: dict[str, tuple[DatumRow, ...]] = field(default_factory=dict)
    """Rows that kept weights have learned from, by path."""
    limit_s: float = 5.0
    """Of requests of training."""
    faults: Mapping[tuple[str, int], Fault] = field(default_factory=dict)
    """Faults of requests of training, by kind and number of the request, from 0."""
    answer_faults: Callable[[int], Sequence[Fault]] = lambda seed: ()
    """Faults of the first attempts at an answer, by its seed."""
    asked: Counter[Any] = field(default_factory=Counter)
    """Requests of each kind, and attempts at each seed."""
    after_failure: list[str] = field(default_factory=list)
    """Requests to a learner that had failed already."""

    def next_fault(self, kind: Any) -> Fault | None:
        """Count a request, and return its fault."""
        number = self.asked[kind]
        self.asked[kind] += 1
        if isinstance(kind, str):
            return self.faults.get((kind, number))
        return ([*self.answer_faults(kind), *[None] * (number + 1)])[number]


class FakeSampler:
    """Samples by logits that do not change."""

    def __init__(self, logits: Sequence[float], store: Store | None = None) -> None:
        self._logits, self._store = tuple(logits), store or Store()

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int, limit_s: float, **more: Any
    ) -> Answered:
        """Return one answer, which follows from weights, prompt and seed."""
        fault = self._store.next_fault(seed)
        asked = carried_out(fault, lambda: self._answer(prompt, max_tokens, seed), limit_s)
        found: Answered = await within(asked, limit_s, "an answer")
        return found

    def _answer(self, prompt: Sequence[int], max_tokens: int, seed: int) -> Answered:
        chance = random.Random(f"{seed}/{len(prompt)}")
        ids: list[int] = []
        while len(ids) < max_tokens and (not ids or ids[-1] != END):
            ids.append(chance.choices([*WORDS, END], self._weights())[0])
        told = tuple(logprobs(self._logits, ids))
        return Answered(tuple(ids), told, stopped=ids[-1] == END)

    async def score(
        self, prompt: Sequence[int], answer: Sequence[int], *, limit_s: float
    ) -> tuple[float, ...]:
        """Return the log-probability of each token of an answer."""
        self._store.scored.append((len(prompt), len(answer)))
        if self._store.unscored:
            self._store.unscored -= 1
            raise ServiceTimeout("the service did not give log-probabilities within 1 s")
        return tuple(logprobs(self._logits, answer))

    def _weights(self) -> list[float]:
        return [math.exp(value) for value in self._logits]


class FakeLearner:
    """Learns logits by gradient ascent with momentum."""

    def __init__(
        self,
        store: Store,
        logits: Sequence[float],
        momentum: Sequence[float],
        learned: Sequence[DatumRow] = (),
    ) -> None:
        self._store, self._logits, self._momentum = store, list(logits), list(momentum)
        self._learned, self._failed = list(learned), False

    async def snapshot(self) -> FakeSampler:
        """Return what samples with the weights as they are now."""
        self._store.snapshots += 1
        found: FakeSampler = await self._asked(
            "snapshot", lambda: FakeSampler(self._logits, self._store)
        )
        return found

    async def update(self, rows: Sequence[DatumRow], **told: Any) -> Updated:
        """Take one step along the policy gradient of the rows."""
        self._store.updates.append((tuple(rows), told))
        found: Updated = await self._asked("update", lambda: self._update(rows, told))
        return found

    async def save(self, name: str, *, keep_days: int) -> tuple[str, str]:
        """Keep logits and momentum."""
        found: tuple[str, str] = await self._asked("save", lambda: self._save(name, keep_days))
        return found

    async def save_sampler(self, name: str, *, keep_days: int) -> str:
        """Keep logits for sampling."""
        found: tuple[str, str] = await self._asked("keep", lambda: self._save(name, keep_days))
        return found[1]

    async def _asked(self, kind: str, work: Callable[[], Any]) -> Any:
        if self._failed:
            self._store.after_failure.append(kind)
        fault, limit_s = self._store.next_fault(kind), self._store.limit_s
        try:
            return await within(carried_out(fault, work, limit_s), limit_s, f"a {kind}")
        except BaseException:
            self._failed = True
            raise

    def _update(self, rows: Sequence[DatumRow], told: Mapping[str, Any]) -> Updated:
        self._learned += rows
        found = tuple(tuple(logprobs(self._logits, row.targets)) for row in rows)
        shares = [math.exp(each) for each in logprobs(self._logits, [*WORDS, END])]
        slope = [0.0] * len(shares)
        loss = 0.0
        for row, learner in zip(rows, found, strict=True):
            for target, advantage, mine, theirs in zip(
                row.targets, row.advantages, learner, row.logprobs, strict=True
            ):
                if advantage:
                    loss -= advantage * math.exp(mine - theirs)
                    for place, share in enumerate(shares):
                        slope[place] += advantage * ((place == index(target)) - share)
        self._momentum = [0.5 * a + b for a, b in zip(self._momentum, slope, strict=True)]
        rate = told["learning_rate"]
        self._logits = [a + rate * b for a, b in zip(self._logits, self._momentum, strict=True)]
        norm = math.sqrt(sum(value * value for value in slope))
        return Updated(found, {"loss:sum": loss, "fake/grad_norm": norm})

    async def has_loss(self, loss: str, loss_config: Any) -> bool:
        """Return whether the store has a loss."""
        self._store.tried.append(loss)
        return loss not in self._store.lacks

    def _save(self, name: str, keep_days: int) -> tuple[str, str]:
        path = f"tinker://run-{len(self._store.kept)}/weights/{name}"
        self._store.kept[path] = (list(self._logits), list(self._momentum))
        self._store.learned[path] = tuple(self._learned)
        self._store.saved.append((name, keep_days))
        return path, path.replace("weights", "sampler_weights")


class FakeService:
    """A connection to a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.closed = self.renewed = 0
        self.pauses = Pauses(say=lambda line: None)

    async def create(self, model: str, rank: int, seed: int) -> FakeLearner:
        """Return a fresh learner."""
        self._store.created.append((model, rank, seed))
        return await self._made("create", lambda: FakeLearner(self._store, *fresh()))

    async def restore(self, path: str, *, optimiser: bool = True) -> FakeLearner:
        """Return a learner as a checkpoint has it."""
        if path not in self._store.kept:
            raise UsageError(f"the Tinker server has no {path}")
        self._store.restored.append(path)
        logits, momentum = self._store.kept[path]
        momentum = momentum if optimiser else fresh()[1]
        self._store.began.append(momentum)
        learned = self._store.learned.get(path, ())
        return await self._made(
            "restore", lambda: FakeLearner(self._store, logits, momentum, learned)
        )

    async def sampler(self, path: str = "", *, base_model: str = "") -> FakeSampler:
        """Return what samples with kept weights, or with fresh ones."""
        name = path.replace("sampler_weights", "weights")
        if path and name not in self._store.kept:
            raise UsageError(f"the Tinker server has no {path}")
        logits, _ = self._store.kept[name] if path else fresh()
        return FakeSampler(logits, self._store)

    async def delete(self, path: str) -> None:
        """Delete what is kept."""
        if self._store.undeletable:
            raise ServiceTimeout("the service did not give the deletion of a checkpoint within 1 s")
        self._store.deleted.append(path)
        self._store.kept.pop(path, None)

    def renew(self) -> None:
        """Count that a new session was taken."""
        self.renewed += 1

    async def _made(self, kind: str, make: Callable[[], FakeLearner]) -> FakeLearner:
        limit_s = self._store.limit_s
        asked = carried_out(self._store.next_fault(kind), make, limit_s)
        found: FakeLearner = await within(asked, limit_s, kind)
        return found

    def close(self) -> None:
        """Count that it was closed."""
        self.closed += 1


def fresh() -> tuple[list[float], list[float]]:
    """Return logits and momentum before any training."""
    return [0.0] * (len(WORDS) + 1), [0.0] * (len(WORDS) + 1)


def index(token: int) -> int:
    """Return the place of a token's logit; -1 for one that is never sampled."""
    return len(WORDS) if token == END else token - WORDS[0] if token in WORDS else -1


def logprobs(logits: Sequence[float], ids: Sequence[int]) -> list[float]:
    """Return the log-probability of each token; 0 for one that is never sampled."""
    total = math.log(sum(math.exp(value) for value in logits))
    return [logits[index(each)] - total if index(each) >= 0 else 0.0 for each in ids]


OF_TRL = ("optimiser.micro_batch", "model.")
"""Settings of the tiny run that a service has no use for."""


def config(*overrides: str) -> Any:
    """A configuration of a run of five steps."""
    from kernelgym_train.config.config import load_config
    from support import tiny

    shared = (each for each in tiny.SETTINGS if not each.startswith(OF_TRL))
    own = ("run.backend=tinker", "model.lora_rank=4", "optimiser.learning_rate=2.0")
    return load_config(None, (*shared, *own, *overrides))


def run(
    folder: Any,
    settings: Any,
    store: Store,
    *,
    resume: bool = False,
    from_step: int | None = None,
    script: Any = None,
    spending: Any = None,
    service: Any = None,
) -> Any:
    """Train by a configuration against a store; returns (outcome, log, steps)."""
    from kernelgym.testing import ScriptedEvaluator
    from kernelgym_train.backends.tinker.remote_model import Remote
    from kernelgym_train.backends.tinker.spending import Spending
    from kernelgym_train.backends.tinker.train import train
    from kernelgym_train.launch.assembly import make_steps
    from kernelgym_train.rollout.huggingface_policy import ChatText
    from kernelgym_train.run.runlog import RunLog
    from kernelgym_train.run.training import run_stretches
    from support import tiny

    if resume or from_step is not None:
        log = RunLog.resume(folder, from_step=from_step)
    else:
        log = RunLog.create(folder, settings.model_dump(), {})
    judge = ScriptedEvaluator(script or tiny.judge, ruleset=settings.rules)
    steps = make_steps(settings, tuple(tiny.problems(6)), log.verdicts(judge), log=log)
    text = ChatText(tiny.tokenizer())
    counted = Spending(None) if spending is None else spending
    remote = Remote(
        service or FakeService(store), "http://fake", "tiny", text, (END,), None, 5.0, counted
    )
    outcome = run_stretches(settings, log, steps, lambda progress: train(progress, remote))
    return outcome, log, steps


def served_by(monkeypatch: Any, store: Store, *models: Any) -> list[FakeService]:
    """Have a store stand for the server at any address; returns the connections that are made.

    Args:
        monkeypatch: Pytest's.
        store: The server.
        models: Folders that it serves. Their answers are judged by a script.
    """
    from kernelgym.testing import ScriptedEvaluator
    from kernelgym_train.backends.tinker import backend
    from kernelgym_train.backends.tinker.server_probe import ServedModel
    from kernelgym_train.launch import launch
    from support import tiny

    made: list[FakeService] = []

    def connect(url: str, limit_s: float) -> FakeService:
        made.append(FakeService(store))
        return made[-1]

    def judge(config: Any, **_: Any) -> ScriptedEvaluator:
        return ScriptedEvaluator(tiny.judge, ruleset=config.rules)

    served = tuple(ServedModel(str(model.resolve()), None) for model in models)
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-a-test")
    monkeypatch.setattr(backend, "Service", connect)
    monkeypatch.setattr(backend, "reach", lambda url, key: served)
    monkeypatch.setattr(launch, "run_evaluator", judge)
    return made
