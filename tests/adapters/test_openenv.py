"""OpenEnv's own clients and programs play episodes over its server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernelgym import RemoteEvaluator, UsageError
from kernelgym.serve.key_gate import KeyGate
from kernelgym.serve.keys import KeyRing, Tenant, add_key
from kernelgym.testing import SAMPLE_KERNELS, ScriptedEvaluator
from support.openenv_server import running
from support.scripted_answers import (
    ENV,
    OPTIONS,
    PROBLEMS,
    ScriptedModel,
    essentials,
    expected,
    says,
)
from support.serve_process import serving

pytestmark = pytest.mark.framework("openenv")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "packages" / "kernelgym-openenv"
IDS = [problem.id for problem in PROBLEMS.values()]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Address of a server whose judge is a script."""
    from kernelgym.adapters.openenv import create_app

    with running(create_app(ENV, **OPTIONS, evaluator=ScriptedEvaluator())) as found:
        yield found


async def play(url: str, model: ScriptedModel, **reset: Any) -> tuple[str, list[Any]]:
    """Play one episode by OpenEnv's client; returns the problem's id and the steps' results."""
    from openenv.core.generic_client import GenericEnvClient

    async with GenericEnvClient(base_url=url) as client:
        result = await client.reset(**reset)
        messages, results = list(result.observation["messages"]), []
        while not result.done:
            answer = model.answer(messages)
            action = {"answer": str(answer), "cut_off": answer.cut_off}
            result = await client.step(action)
            results.append(result)
            said = {"role": "assistant", "content": str(answer)}
            messages += [said, *result.observation["messages"]]
        state = await client.state()
        assert (state["step_count"], state["ended"] != "") == (len(results), True)
        return state["problem_id"], results


def told(results: list[Any]) -> list[tuple[str, float]]:
    """Return status and reward of each step."""
    return [(result.metadata["status"], result.reward) for result in results]


def test_sixteen_sessions_at_once_get_the_scores_of_play_episode(url: str) -> None:
    async def play_all() -> list[tuple[str, list[Any]]]:
        asked = [IDS[number % len(IDS)] for number in range(16)]
        return await asyncio.gather(*(play(url, ScriptedModel(), problem_id=i) for i in asked))

    wanted = {name: essentials(played) for name, played in expected().items()}
    played = asyncio.run(play_all())
    assert len(played) == 16
    assert all(told(results) == wanted[problem] for problem, results in played)


def test_reset_takes_a_seed_a_split_and_an_index(url: str) -> None:
    async def begun(**reset: Any) -> str:
        from openenv.core.generic_client import GenericEnvClient

        async with GenericEnvClient(base_url=url) as client:
            result = await client.reset(**reset)
            return str(result.observation["metadata"]["problem_id"])

    assert asyncio.run(begun(split="all", index=3)) == IDS[3]
    assert asyncio.run(begun(seed=5)) == asyncio.run(begun(seed=5))
    for wrong in ({"problem": "L1/1"}, {"problem_id": "L1/999"}, {"split": "none", "index": 0}):
        with pytest.raises(RuntimeError, match="unknown"):
            asyncio.run(begun(**wrong))


def test_task_api_lists_what_is_played(url: str) -> None:
    splits = httpx.get(f"{url}/kernelgym/splits").json()
    assert splits[0]["name"] == "all" and len(splits) > 1
    counted = httpx.post(f"{url}/kernelgym/num_tasks", json={"split": "all"}).json()
    assert counted == {"num_tasks": len(IDS)}
    found = httpx.post(f"{url}/kernelgym/task", json={"split": "all", "index": 1}).json()
    assert found["task"]["id"] == IDS[1]
    asked = {"split": "all", "index": 99}
    assert httpx.post(f"{url}/kernelgym/task", json=asked).status_code == 400


def test_plain_step_without_a_session_is_a_conflict(url: str) -> None:
    answered = httpx.post(f"{url}/step", json={"action": {"answer": says("correct")}})
    assert answered.status_code == 409 and "/ws" in answered.json()["detail"]
    assert httpx.post(f"{url}/reset", json={"problem_id": "L1/999"}).status_code == 400


def test_answer_whose_fences_a_bridge_took_off_is_read(url: str) -> None:
    bare = f"{SAMPLE_KERNELS['triton'].source}\n# verdict: correct\n"
    model = ScriptedModel(instead={"malformed": bare})
    _, (result,) = asyncio.run(play(url, model, problem_id=PROBLEMS["malformed"].id))
    assert result.metadata["status"] == "correct"


def test_client_that_disconnects_in_mid_episode_frees_its_session() -> None:
    from openenv.core.generic_client import GenericEnvClient

    from kernelgym.adapters.openenv import create_app

    async def leave(url: str) -> None:
        client = GenericEnvClient(base_url=url)
        await client.connect()
        await client.reset(problem_id=IDS[0])
        await client.step({"answer": says("wrong")})
        await client._ws.close()  # without the message that ends a session

    app = create_app(ENV, sessions=1, **OPTIONS, evaluator=ScriptedEvaluator())
    with running(app) as found:
        for _ in range(3):
            asyncio.run(leave(found))
        _, results = asyncio.run(play(found, ScriptedModel(), problem_id=IDS[0]))
    assert told(results) == essentials(expected()[IDS[0]])


def test_judge_killed_in_mid_episode_is_an_error_and_no_reward(tmp_path: Path) -> None:
    from openenv.core.generic_client import GenericEnvClient

    from kernelgym.adapters.openenv import create_app

    async def begun(url: str, kill: Any) -> float:
        async with GenericEnvClient(base_url=url) as client:
            await client.reset(problem_id=IDS[0])
            first = await client.step({"answer": says("wrong")})
            kill()
            with pytest.raises(RuntimeError, match="no fault of the kernel"):
                await client.step({"answer": says("wrong", 2)})
            with pytest.raises(RuntimeError, match="over"):
                await client.step({"answer": says("wrong", 3)})
            again = await client.reset(problem_id=IDS[0])
            assert again.reward is None and not again.done
            return float(first.reward)

    with serving(tmp_path) as (process, judge), RemoteEvaluator(judge, patience_s=2) as evaluator:
        with running(create_app(ENV, **OPTIONS, evaluator=evaluator)) as found:
            first = asyncio.run(begun(found, process.kill))
    assert first == expected()[IDS[0]].scores[0]


def test_keys_are_asked_for_on_requests_and_sessions(tmp_path: Path) -> None:
    from openenv.core.generic_client import GenericEnvClient

    from kernelgym.adapters.openenv import create_app

    keys = tmp_path / "keys.yaml"
    key = add_key(keys, Tenant(name="trainer"))
    reader = add_key(keys, Tenant(name="reader", roles=("admin",)))
    app = create_app(ENV, **OPTIONS, evaluator=ScriptedEvaluator())

    async def reset(url: str, given: str) -> Any:
        headers = {"Authorization": f"Bearer {given}"}
        async with GenericEnvClient(base_url=url, headers=headers) as client:
            return await client.reset()

    with running(KeyGate(app, KeyRing(keys))) as found:
        assert httpx.get(f"{found}/health").status_code == 401
        good = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{found}/health", headers=good).status_code == 200
        bad = {"Authorization": f"Bearer {reader}"}
        assert httpx.get(f"{found}/health", headers=bad).status_code == 403
        assert asyncio.run(reset(found, key)).observation["text"]
        with pytest.raises(Exception, match="403"):
            asyncio.run(reset(found, "kg_wrong"))


def test_context_that_rewrites_messages_is_refused() -> None:
    from kernelgym.adapters.openenv import create_app

    with pytest.raises(UsageError, match="transcript"):
        create_app(ENV, context="recent", **OPTIONS, evaluator=ScriptedEvaluator())


def test_web_page_shows_kernel_and_feedback(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgym.adapters import openenv

    drawn: list[str | None] = []
    render = openenv.KernelSessionEnvironment.render_web

    class Watched(openenv.KernelSessionEnvironment):
        def step(self, *arguments: Any, **options: Any) -> Any:
            drawn.append(render(self, {}))
            stepped = super().step(*arguments, **options)
            drawn.append(render(self, {}))
            return stepped

    monkeypatch.setenv("ENABLE_WEB_INTERFACE", "true")
    monkeypatch.setattr(openenv, "KernelSessionEnvironment", Watched)
    action = {"answer": says("wrong").replace("# 1", "# <b>")}
    with running(openenv.create_app(ENV, **OPTIONS, evaluator=ScriptedEvaluator())) as found:
        assert httpx.get(f"{found}/web/", timeout=60).status_code == 200
        assert httpx.post(f"{found}/web/reset", json={}, timeout=60).json()["observation"]["text"]
        stepped = httpx.post(f"{found}/web/step", json={"action": action}, timeout=60).json()
    assert stepped["metadata"]["status"] == "wrong" and stepped["reward"] > 0.0
    before, after = drawn
    assert before is None and after.count("<pre>") == 2
    assert "class ModelNew" in after and "# &lt;b&gt;" in after


def test_openenv_validates_package_and_running_server(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("openenv")
    static = [program, "validate", PACKAGE, "--level", "static", "--skip-build", "--json"]
    done = subprocess.run(static, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    with serving(tmp_path) as (_, judge):
        command = [sys.executable, "-m", "server.app", "--evaluator", judge, "--port", "0"]
        with subprocess.Popen(command, cwd=PACKAGE, stderr=subprocess.PIPE, text=True) as served:
            try:
                assert served.stderr is not None
                line = next(each for each in served.stderr if "running on" in each)
                found = line.split(" on ")[1].split()[0]
                checked = [program, "validate", "--url", found, "--json"]
                done = subprocess.run(checked, capture_output=True, text=True, timeout=120)
                assert done.returncode == 0, done.stdout + done.stderr
                assert json.loads(done.stdout)["passed"]
            finally:
                served.terminate()
                served.communicate()


def test_example_ends_with_a_correct_kernel(tmp_path: Path) -> None:
    """The real judge judges its two kernels."""
    command = [sys.executable, str(ROOT / "examples/14_openenv.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("correct: reward 1.00, done True"), done.stdout
