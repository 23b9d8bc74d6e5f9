from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

from kernelgym.errors import UnknownName, UnsupportedLanguage, UsageError
from kernelgym.languages import LANGUAGES, check_language, language
from kernelgym.rulesets import (
    RULESETS,
    Limits,
    Ruleset,
    TimingProtocol,
    precise_rules,
    recorded_ruleset,
    ruleset,
    with_run_seconds,
    with_tolerances,
)


def test_rulesets_are_found_by_name_and_pass_through() -> None:
    assert ruleset("strict") is RULESETS["strict"]
    own = Ruleset("own", min_calls=1)
    assert ruleset(own) is own


@pytest.mark.parametrize("name", ["strikt", "", "STRICT", ["strict"], None])
def test_an_unknown_ruleset_names_the_known_ones(name: object) -> None:
    with pytest.raises(UnknownName, match="kernelbench") as caught:
        ruleset(name)  # type: ignore[arg-type]
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", sorted(RULESETS))
def test_ruleset_sent_as_json_comes_back_equal(name: str) -> None:
    rules = dataclasses.replace(RULESETS[name], limits=Limits(run_s=1.0))
    assert Ruleset.from_dict(json.loads(json.dumps(dataclasses.asdict(rules)))) == rules


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"atol": 1e-3},
        {"secret_seed": False},
        {"hard_findings": ()},
        {"limits": Limits(run_s=1.0)},
        {"timing": TimingProtocol(min_pairs=9)},
    ],
)
def test_any_change_changes_the_digest(change: dict[str, object]) -> None:
    strict = RULESETS["strict"]
    assert dataclasses.replace(strict, **change).digest != strict.digest  # type: ignore[arg-type]
    assert dataclasses.replace(strict) == strict
    assert dataclasses.replace(strict).label == strict.label


def test_labels_carry_name_and_digest() -> None:
    labels = {entry.label for entry in RULESETS.values()}
    assert len(labels) == len(RULESETS)
    for name, entry in RULESETS.items():
        assert entry.label == f"{name}@{entry.digest}"
        assert len(entry.digest) == 8


def test_shipped_labels_change_only_on_purpose() -> None:
    # A new label makes all verdicts under the old one incomparable.
    labels = [entry.label for entry in RULESETS.values()]
    assert labels == ["strict@8d679aff", "kernelbench@9eff9b4e"]


def test_a_current_label_names_its_ruleset() -> None:
    strict = RULESETS["strict"]
    assert ruleset(strict.label) is strict and recorded_ruleset(strict.label) == strict
    ending = dataclasses.replace(strict, stop_at_first_failure=True)
    assert ending.label != strict.label and recorded_ruleset(ending.label) == ending
    for unknown in ("strict@00000000", "@", "mine@19248b98"):
        with pytest.raises(UnknownName):
            ruleset(unknown)
        with pytest.raises(UsageError, match="none of those that ship"):
            recorded_ruleset(unknown)


def test_precise_rules_replace_the_precision_alone() -> None:
    strict, bench = RULESETS["strict"], RULESETS["kernelbench"]
    assert (strict.precision, bench.precision) == ("own", "fp32")
    assert precise_rules("strict", "") is strict
    assert precise_rules(bench, "own") == dataclasses.replace(bench, precision="own")
    with pytest.raises(UnknownName, match="own, fp32, fp16, bf16"):
        precise_rules("strict", "fp8")


@pytest.mark.parametrize("baseline", ["compile", "best"])
@pytest.mark.parametrize("name", RULESETS)
def test_a_baseline_makes_another_label(name: str, baseline: str) -> None:
    rules = precise_rules(name, "", baseline)
    assert rules.timing.baseline == baseline and rules.label != RULESETS[name].label
    assert recorded_ruleset(rules.label) == rules
    assert precise_rules(name, "", "eager") == RULESETS[name]
    with pytest.raises(UnknownName, match="eager, compile, best"):
        precise_rules(name, "", "jit")


@pytest.mark.parametrize("base", ["strict", "kernelbench"])
@pytest.mark.parametrize("rtol", [0.0, 1e-3, 0.1 + 0.2, 5e-324, 3])
def test_own_tolerances_are_read_back(base: str, rtol: float) -> None:
    rules = with_tolerances(base, 1e-4, rtol)
    assert (rules.tolerance, rules.atol, rules.rtol) == ("allclose", 1e-4, rtol)
    assert rules.label == f"{base}+tolerances(atol=0.0001,rtol={float(rtol)!r})@{rules.digest}"
    assert ruleset(rules.name) == ruleset(rules.label) == recorded_ruleset(rules.label) == rules
    assert with_tolerances(rules, 1e-4, rtol) == rules
    for baseline in ("compile", "best"):
        timed = precise_rules(rules, "", baseline)
        assert recorded_ruleset(timed.label) == timed
        assert precise_rules(timed.label.partition("@")[0], "", baseline) == timed


def test_own_tolerances_of_another_digest_are_unknown() -> None:
    name = with_tolerances("strict", 1e-4, 1e-3).name
    for label in (f"{name}@00000000", "strict+tolerances(atol=x,rtol=1)@0", "no+tolerances@0"):
        with pytest.raises(UsageError):
            recorded_ruleset(label)
        with pytest.raises(UnknownName):
            ruleset(label)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="give a number from 0"):
            with_tolerances("strict", 1e-4, wrong)


def test_own_is_replaced_by_the_lowest_precision() -> None:
    strict, bench = RULESETS["strict"], RULESETS["kernelbench"]
    assert strict.at("bf16").tolerances == (1e-2, 1e-2)
    assert strict.at("fp64").floor < strict.at("fp32").floor == strict.error_floor
    assert bench.at("bf16") is bench


def test_strict_is_strict_and_kernelbench_follows_the_benchmark() -> None:
    strict, bench = RULESETS["strict"], RULESETS["kernelbench"]
    assert strict.secret_seed and strict.forbid_input_mutation
    assert (strict.min_calls, strict.max_calls) == (3, 6)
    assert not bench.secret_seed
    assert (bench.min_calls, bench.max_calls, bench.atol, bench.rtol) == (5, 5, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("name", "device", "fits"),
    [
        ("triton", "cpu", True),
        ("triton", "cuda:1", True),
        ("cpp", "cpu", True),
        ("cpp", "cuda", False),
        ("cuda", "cpu", False),
        ("cuda", "cuda:0", True),
        ("hip", "cuda", False),
    ],
)
def test_languages_know_their_devices(name: str, device: str, fits: bool) -> None:
    if fits:
        assert check_language(name, device) is LANGUAGES[name]
    else:
        with pytest.raises(UnsupportedLanguage, match="this device runs"):
            check_language(name, device)


def test_an_unknown_language_suggests_a_near_one() -> None:
    with pytest.raises(UnknownName, match="did you mean triton"):
        language("tritn")


def test_a_language_is_timed_only_where_it_runs() -> None:
    for entry in LANGUAGES.values():
        assert set(entry.timed_on) <= set(entry.devices)


def test_usage_errors_are_value_errors_and_survive_pickling() -> None:
    error = UnknownName("problem", "x", [f"p{i}" for i in range(30)], "Try `kernelgym ls`.")
    assert isinstance(error, UsageError) and isinstance(error, ValueError)
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error)
    assert "30 in all" in str(error) and "p29" not in str(error)


@pytest.mark.parametrize("base", ["strict", "kernelbench", with_tolerances("strict", 0.1, 0.2)])
def test_ruleset_with_run_seconds_is_found_by_its_label(base: Any) -> None:
    rules = with_run_seconds(base, 7.5)
    assert rules.limits.run_s == 7.5 and with_run_seconds(rules, 7.5) == rules
    assert ruleset(rules.name) == ruleset(rules.label) == recorded_ruleset(rules.label) == rules
    assert rules.digest != ruleset(base).digest


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
def test_run_seconds_that_are_no_limit_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="run-seconds"):
        with_run_seconds("strict", seconds)
