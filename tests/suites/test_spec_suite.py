"""A kernel spec as a suite of problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelgym import get_problem, suite
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rulesets import RULESETS
from kernelgym.suites.known_memory import needed_bytes
from kernelgym.suites.spec_suite import SpecSuite
from kernelgym.testing import ScriptedEvaluator
from support.specs import SPEC, changed, written


def test_each_shape_is_a_problem(tmp_path: Path) -> None:
    found = suite(written(tmp_path, SPEC))
    ids = [problem.id for problem in found.problems()]
    assert ids == ["scaled/rows=4", "scaled/rows=31", "scaled/rows=1237"]
    assert [p.name for p in found.problems(split="tune")] == ["rows=4"]
    assert len({p.digest for p in found.problems()}) == 3
    assert found.get(ids[1]) == found.problems(ids="rows=31")[0]
    assert needed_bytes(found.get(ids[0])) == 2 * 2 * 4 * 8 * 4 + (1 << 30)


def test_a_shape_is_named_behind_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, SPEC)
    assert get_problem(f"{path}#rows=31").id == "scaled/rows=31"
    with pytest.raises(UsageError, match=r"3 shapes; name one, as in .*#rows=4"):
        get_problem(path)
    with pytest.raises(UnknownName, match="rows=5"):
        get_problem(f"{path}#rows=5")


def test_own_tolerances_make_other_rules(tmp_path: Path) -> None:
    spec = changed(SPEC, contract__tolerances={"atol": 1e-3, "rtol": 1e-2})
    own, strict = SpecSuite(written(tmp_path, spec)).rules("strict"), RULESETS["strict"]
    assert (own.tolerance, own.atol, own.rtol) == ("allclose", 1e-3, 1e-2)
    assert (
        own.label.startswith("strict+tolerances(atol=0.001,rtol=0.01)@")
        and own.digest != strict.digest
    )
    assert SpecSuite(written(tmp_path, spec)).rules(own) == own
    assert SpecSuite(written(tmp_path, SPEC)).rules("strict") == strict


@pytest.mark.parametrize("parent", ["super()", "super(Model, self)"])
def test_a_problem_can_be_the_reference(parent: str, tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, factor):\n"
        f"        {parent}.__init__()\n        self.factor = factor\n"
        "    def forward(self, x):\n        return x * self.factor\n"
        "def get_inputs():\n    return [torch.ones(3)]\ndef get_init_inputs():\n    return [1.5]\n"
    )
    spec = changed(SPEC, reference={"problem": "scale.py"})
    names: dict[str, object] = {}
    exec(SpecSuite(written(tmp_path, spec)).problems()[0].source, names)
    (x,) = names["get_inputs"]()  # type: ignore[operator]
    model = names["Model"](*names["get_init_inputs"]())  # type: ignore[operator]
    assert tuple(x.shape) == (4, 8) and bool((model(x) == x * 1.5).all())
    whole = SpecSuite(written(tmp_path, changed(spec, contract=None)))
    assert [p.source for p in whole.problems()] == [(tmp_path / "scale.py").read_text()]


def test_environments_play_by_a_spec(tmp_path: Path) -> None:
    spec = changed(SPEC, contract__tolerances={"atol": 1e-3, "rtol": 1e-2})
    path = written(tmp_path, spec)
    env = KernelEnv(suite=str(path), split="tune", language="cpp")
    assert env.ruleset.name == "strict+tolerances(atol=0.001,rtol=0.01)"
    observation, info = env.reset(seed=1)
    assert info["problem_id"] == "scaled/rows=4" and "return x * factor" in str(observation)
    with pytest.raises(UsageError, match="strict"):
        KernelEnv(suite=str(path), language="cpp", evaluator=ScriptedEvaluator())
