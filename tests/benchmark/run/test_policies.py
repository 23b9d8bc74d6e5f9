"""Policies by name: those that are here, those of other packages, and options without a use."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kernelgym.benchmark.run import policies
from kernelgym.benchmark.run.policies import (
    GROUP,
    POLICIES,
    EvalPolicy,
    PolicyOptions,
    ProviderFailure,
    make_policy,
)
from kernelgym.errors import UnknownName, UsageError
from support.evals import CountedPolicy

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
DECLARED = PROJECT["entry-points"][GROUP]


def made_for_a_test(target: str, options: PolicyOptions) -> CountedPolicy:
    options.refuse_others("mine")
    policy = CountedPolicy()
    policy.asked.append((target, 0, 0))  # type: ignore[arg-type]
    return policy


def declare(monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    found = [EntryPoint(name, value, GROUP) for name, value in entries.items()]
    monkeypatch.setattr(policies, "entry_points", lambda *, group: found)


def test_policy_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, mine=f"{__name__}:made_for_a_test")
    monkeypatch.setattr(EntryPoint, "load", lambda entry: made_for_a_test)
    policy: Any = make_policy("mine:a/b:c")
    assert isinstance(policy, EvalPolicy) and policy.asked == [("a/b:c", 0, 0)]
    with pytest.raises(UsageError, match="--model x has no use with policy 'mine', which takes no"):
        make_policy("mine", PolicyOptions(model="x"))
    with pytest.raises(UnknownName, match=r"known: .*scripted, mine"):
        make_policy("yours")


def test_policy_that_lacks_its_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, mine="no_such_package:make")
    with pytest.raises(UsageError, match="policy 'mine' needs a package that is not installed"):
        make_policy("mine")


def test_own_policies_and_the_trainers_are_there() -> None:
    for kind in POLICIES:
        with pytest.raises((UsageError, TypeError)):
            make_policy(f"{kind}:", PolicyOptions(rpm=-1.0))
    assert set(DECLARED) == {"hf", "tinker"}
    for kind, value in DECLARED.items():
        make = EntryPoint(kind, value, GROUP).load()
        with pytest.raises(UsageError, match=f"policy '{kind}' needs"):
            make("", PolicyOptions())


def test_failure_keeps_its_cost_when_it_is_pickled() -> None:
    import pickle

    failure = pickle.loads(pickle.dumps(ProviderFailure("no", 3, 0.5)))
    assert (str(failure), failure.tries, failure.usd) == ("no", 3, 0.5)
