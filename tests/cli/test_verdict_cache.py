"""`kernelgym check --verdict-cache`: what the folder holds is not judged again."""

from __future__ import annotations

import json


def test_a_second_check_judges_nothing(run, judges, folder):
    check = ("check", "--problem", "problem.py", "--verdict-cache", "kept", "--json")
    first, second = (json.loads(run(*check, "fast.py")[1]) for _ in range(2))
    assert {**first, "wall_s": 0} == {**second, "wall_s": 0}
    assert [len(judge.judged) for judge in judges] == [1, 0]
    assert all(judge.closed for judge in judges)
    assert run("check", "--problem", "problem.py", "--json", "fast.py")[0] == 0
    assert len(judges[2].judged) == 1, "without the option nothing is looked for"


def test_a_check_and_a_batch_share_a_folder(run, judges, folder):
    run("check", "--problem", "problem.py", "--verdict-cache", "kept", "wrong.py")
    names = ["right.py", "wrong.py", "refused.py", "lost.py"]
    rows = [{"id": name, "problem": "problem.py", "kernel": name} for name in names]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for out in ("a.jsonl", "b.jsonl"):
        batch = ("check", "--batch", "jobs.jsonl", "--out", out, "--verdict-cache", "kept")
        assert run(*batch)[0] == 0
    assert [len(judge.judged) for judge in judges] == [1, 2, 1]  # a lost one is judged again
    kept = (folder / "b.jsonl").read_text().splitlines()
    statuses = [json.loads(line)["status"] for line in kept]
    assert statuses == ["correct", "wrong", "rejected", "unavailable"]


def test_a_folder_that_cannot_be_used_is_said_before_anything_is_judged(run, judges, folder):
    code, _, err = run(
        "check", "--problem", "problem.py", "--verdict-cache", "/dev/null/x", "fast.py"
    )
    assert code == 2 and "cannot be kept" in err
    assert judges[0].closed and not judges[0].judged
