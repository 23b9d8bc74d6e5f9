"""Retrieval in environments: the option, the wrapper, and what is recorded of it."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

from kernelgym import Context, Retrieval, RetrievalObservation, play_episode
from kernelgym.envs.kernel_env import KernelEnv
from kernelgym.envs.recording import RecordTrajectories, RecordVectorTrajectories
from kernelgym.errors import UsageError
from kernelgym.prompts.hardware import Hardware
from kernelgym.prompts.observer import render
from kernelgym.records.export import read_before, sft_rows
from kernelgym.records.trajectories import EpisodeRecord, read_records
from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import solve
from kernelgym.testing import ScriptedEvaluator, reply
from kernelgym.types import Kernel

GYM_ID = "kernelgym:Synthetic-L2-MultiTurn-v0"
ID = "Synthetic/L2/4"


def answer(says: str, number: int = 0) -> str:
    source = solve(get_problem(ID)).source
    return reply(Kernel(f"{source}# {number}\n# verdict: {says}\n", "triton"))


def make(**options: Any) -> gym.Env[str, str]:
    return gym.make(GYM_ID, **{"evaluator": ScriptedEvaluator(), "problems": [ID]} | options)


def core(env: gym.Env[str, str]) -> KernelEnv:
    found = env.unwrapped
    assert isinstance(found, KernelEnv)
    return found


def test_option_shows_examples_and_names_them() -> None:
    env = make(retrieval="synthetic")
    observation, info = env.reset(seed=1)
    assert "# Solved problems that resemble yours" in observation
    assert len(info["retrieved"]) == 3 and 0 < info["retrieved_tokens"] <= 2000
    assert core(env).retrieved == info["retrieved"]
    assert render(core(env).messages) == observation
    plain, less = make().reset(seed=1)
    assert less["retrieved"] == () and less["retrieved_tokens"] == 0
    added = info["prompt_tokens"] - less["prompt_tokens"]
    assert added == pytest.approx(info["retrieved_tokens"], abs=2)
    later, *_, info = env.step(answer("wrong"))
    assert (
        info["retrieved"] == ()
        and "# Solved problems" not in later
        and observation.startswith(plain)
    )


@pytest.mark.parametrize(
    "given",
    [
        {"index": "synthetic", "k": 2, "tokens": 900},
        Retrieval(k=2, tokens=900),
    ],
)
def test_option_takes_fields_as_a_mapping_or_itself(given: Any) -> None:
    env = make(retrieval=given)
    _, info = env.reset(seed=1)
    (part,) = core(env).observer.parts
    assert isinstance(part, Retrieval) and (part.k, part.tokens) == (2, 900)
    assert len(info["retrieved"]) <= 2 and info["retrieved_tokens"] <= 900


@pytest.mark.parametrize(
    "options",
    [
        {"retrieval": Retrieval(k=2)},
        {"context": Context(last=2, best=True)},
        {"hardware": Hardware("NVIDIA H100", units=132)},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.parametrize("batched", [False, True])
def test_spec_with_a_dataclass_survives_json(options: dict[str, Any], batched: bool) -> None:
    make_one = gym.make_vec if batched else gym.make
    env: Any = make_one(GYM_ID, problems=ID, **options)
    again: Any = make_one(EnvSpec.from_json(env.spec.to_json()))
    first = env.envs[0] if batched else env.unwrapped
    second = again.envs[0] if batched else again.unwrapped
    assert first.observer == second.observer != KernelEnv("Synthetic", 2).observer


def test_wrapper_installs_what_the_option_does() -> None:
    wrapped = RetrievalObservation(make(), k=2, tokens=1500)
    optional = make(retrieval={"k": 2, "tokens": 1500})
    assert core(wrapped).observer == core(optional).observer
    assert wrapped.reset(seed=1) == optional.reset(seed=1)
    check_env(wrapped.unwrapped, skip_render_check=True)


def test_wrapper_survives_its_spec_as_json() -> None:
    env = RetrievalObservation(gym.make(GYM_ID, problems=ID), k=2, when="always")
    assert env.spec is not None
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert core(again).observer == core(env).observer
    assert again.reset(seed=1)[0] == env.reset(seed=1)[0]


def test_wrapper_goes_into_slots_of_a_sync_vector() -> None:
    envs = gym.make_vec(
        GYM_ID,
        2,
        vectorization_mode="sync",
        wrappers=[RetrievalObservation],
        problems=[ID],
        evaluator=ScriptedEvaluator(),
    )
    observations, _ = envs.reset(seed=1)
    assert all("# Solved problems" in text for text in observations)


def test_batched_slots_and_siblings_show_examples() -> None:
    envs: Any = gym.make_vec(
        GYM_ID, 2, problems=[ID], evaluator=ScriptedEvaluator(), retrieval="synthetic"
    )
    observations, infos = envs.reset(seed=1)
    assert observations[0] == observations[1] and "# Solved problems" in observations[0]
    assert all(len(ids) == 3 for ids in infos["retrieved"])
    assert infos["retrieved_tokens"].tolist() == [envs.envs[0]._retrieved()[1]] * 2
    twin = envs.envs[0].sibling()
    assert twin.reset(seed=1)[0] == observations[0]


def test_awaited_policy_reads_the_examples() -> None:
    read = []

    async def policy(messages: Any) -> str:
        read.append(messages)
        return answer("correct 2.0")

    env = RetrievalObservation(make())
    asyncio.run(play_episode(env, policy))
    assert "# Solved problems" in read[0][1].content


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"retrieval": "web"}, "'web' is not an index"),
        ({"retrieval": Path("/tmp/index")}, "kernelgym index build"),
        ({"retrieval": {"k": 0}}, "at least 1"),
        ({"retrieval": {"tokns": 3}}, "did you mean tokens"),
        ({"context": {"last": 0}}, "at least the last"),
        ({"context": {"lst": 2}}, "did you mean last"),
        ({"hardware": {"name": "x", "unit": 3}}, "did you mean units"),
    ],
)
@pytest.mark.parametrize("make_one", [gym.make, gym.make_vec])
def test_wrong_option_is_refused_at_make(make_one: Any, wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_one(GYM_ID, problems=ID, **wrong)


def test_wrapper_refuses_other_envs_and_a_second_time() -> None:
    with pytest.raises(UsageError, match="needs a kernelgym environment"):
        RetrievalObservation(gym.make("CartPole-v1"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="shows retrieved examples already"):
        RetrievalObservation(make(retrieval="synthetic"))
    with pytest.raises(UsageError, match="did you mean tokens"):
        RetrievalObservation(make(), token=3)


def test_record_names_entries_and_export_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    env = RecordTrajectories(make(retrieval="synthetic"), path)
    observation, info = env.reset(seed=1)
    env.step(answer("wrong"))
    env.step(answer("correct 2.0", 1))
    (record,) = read_records(path)
    assert record.retrieved == (info["retrieved"], ())
    assert EpisodeRecord.from_dict(record.to_dict()) == record
    assert render(read_before(record, 0)) == observation
    (row,) = sft_rows([record])
    assert row["turn"] == 1
    other: Any = dict(record.observer)
    fields = other["parts"][0]["fields"] | {"digest": "0" * 16}
    stale = dataclasses.replace(
        record, observer={"parts": [{"type": "retrieval", "fields": fields}]}
    )
    with pytest.raises(UsageError, match=r"index 'synthetic' has digest \w+ here.*0{16}"):
        read_before(stale, 0)


def test_batched_record_names_each_episodes_entries(tmp_path: Path) -> None:
    path = tmp_path / "played.jsonl"
    envs: Any = RecordVectorTrajectories(
        gym.make_vec(
            GYM_ID,
            1,
            problems="4-6",
            evaluator=ScriptedEvaluator(),
            retrieval="synthetic",
            max_turns=1,
        ),
        path,
    )
    _, infos = envs.reset(seed=3)
    ids = []
    for number in range(4):
        ids.append(tuple(infos["retrieved"][0]))
        _, _, _, _, infos = envs.step([answer("wrong", number)])
    assert [record.retrieved for record in read_records(path)] == [(each,) for each in ids]
    assert len(set(ids)) > 1
