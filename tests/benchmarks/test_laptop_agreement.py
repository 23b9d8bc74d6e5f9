"""The comparison of a laptop's and a GPU's statuses."""

from benchmarks.judge.laptop_agreement import compare


def _side(**statuses):
    rows = {
        name: {"name": name, "status": status, "findings": found, "message": ""}
        for name, (status, found) in statuses.items()
    }
    return {"rows": rows, "machine": {}, "ruleset": "strict@0"}


def test_compare_counts_kernels_that_both_machines_judged():
    cpu = _side(a=("correct", []), b=("runtime_error", ["interpreter_check"]), c=("correct", []))
    device = _side(a=("correct", []), b=("wrong", []), d=("correct", []))
    found = compare(cpu, device)
    assert (found["kernels"], found["equal"], found["goal_met"]) == (2, 1, False)
    assert [each["name"] for each in found["disagreements"]] == ["b"]
    counts = {"kernels": 1, "equal": 0, "same_answer": 1, "unexplained": 0}
    assert found["groups"]["b"] == counts


def test_compare_names_what_the_cpu_does_not_explain():
    found = compare(_side(a=("correct", [])), _side(a=("wrong", [])))
    assert found["groups"]["a"]["unexplained"] == 1 and found["share"] == 0.0


def test_compare_of_nothing_meets_no_goal():
    assert not compare(_side(), _side())["goal_met"]
