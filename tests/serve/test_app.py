"""The HTTP interface: what is answered, what is refused, and what one tenant sees of another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from concurrent.futures import Future

import pytest

from kernelgym.errors import UsageError
from kernelgym.evaluators.wire import capabilities_from
from kernelgym.serve import app
from kernelgym.serve.keys import Tenant, add_key
from kernelgym.serve.runner import Keeping
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Verdict
from support.served import job, served


def run(coroutine) -> None:
    asyncio.run(coroutine)


class Gated(ScriptedEvaluator):
    """Scripted evaluator that judges a kernel once its gate is open."""

    def __init__(self, **options) -> None:
        self.gate = threading.Event()
        super().__init__(self._wait, **options)

    def _wait(self, problem, kernel) -> Verdict:
        self.gate.wait(20)
        return verdict("correct")


async def ask(client, jobs, wait=20, key=None, **headers):
    if key:
        headers["Authorization"] = f"Bearer {key}"
    headers["content-type"] = "application/json"
    body = json.dumps({"jobs": jobs})
    return await client.post(f"/v1/jobs?wait={wait}", content=body, headers=headers)


async def events_of(client, batch, after=None, key=None) -> list[dict]:
    headers = {"Last-Event-ID": str(after)} if after is not None else {}
    headers |= {"Authorization": f"Bearer {key}"} if key else {}
    answer = await client.get(f"/v1/batches/{batch}/events", headers=headers)
    assert answer.status_code == 200, answer.text
    blocks = [block for block in answer.text.split("\n\n") if block and block[0] != ":"]
    rows = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [{"id": int(row["id"]), "event": row["event"]} | json.loads(row["data"]) for row in rows]


def test_jobs_are_judged_and_waited_for(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            answer = await ask(client, [job(), job("# verdict: wrong\n"), job("\ud800 half")])
            assert answer.status_code == 200
            found = answer.json()
            statuses = [Verdict.from_dict(each["verdict"]).status for each in found["jobs"]]
            assert found["done"] and statuses == ["correct", "wrong", "correct"]
            one = await client.get(f"/v1/jobs/{found['jobs'][1]['id']}")
            assert one.json() == found["jobs"][1] and one.json()["state"] == "done"
            whole = await client.get(f"/v1/batches/{found['id']}")
            assert whole.json() == found

    run(go())


def test_kernel_reaches_the_evaluator_as_sent_with_seed_and_problem(tmp_path) -> None:
    async def go() -> None:
        judge = ScriptedEvaluator()
        async with served(tmp_path, judge) as (client, _):
            await ask(client, [job("a \ud800 \U0001f600", seed="ab12")])
        (given,) = judge.judged
        assert given.problem == SAMPLE_PROBLEM and given.kernel.source == "a \ud800 \U0001f600"
        assert judge.seeds == ["ab12"]

    run(go())


def test_same_idempotency_key_is_the_same_batch_and_another_body_409(tmp_path) -> None:
    async def go() -> None:
        judge = ScriptedEvaluator()
        async with served(tmp_path, judge) as (client, _):
            again = {"Idempotency-Key": "k"}
            first, second = [await ask(client, [job()], **again) for _ in range(2)]
            assert first.json() == second.json() and len(judge.judged) == 1
            other = await ask(client, [job("other")], **again)
            assert other.status_code == 409 and "take a new key" in other.json()["error"]["message"]

    run(go())


def test_request_without_wait_is_answered_202_and_its_events_end_with_done(tmp_path) -> None:
    async def go() -> None:
        judge = Gated()
        async with served(tmp_path, judge) as (client, _):
            answer = await ask(client, [job(), job("b")], wait=0)
            assert answer.status_code == 202 and len(answer.json()["jobs"]) == 2
            asyncio.get_running_loop().call_later(0.2, judge.gate.set)
            events = await events_of(client, answer.json()["id"])
            assert [each["id"] for each in events] == list(range(1, 8))
            assert sorted(each["event"] for each in events) == sorted(
                2 * ["queued", "started", "verdict"] + ["done"]
            )
            given = {each["index"]: each for each in events if each["event"] == "verdict"}
            assert given[1]["verdict"]["status"] == "correct"
            assert await events_of(client, answer.json()["id"], after=5) == events[5:]

    run(go())


def test_stream_after_the_last_event_of_a_finished_batch_is_204(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            batch = (await ask(client, [job()])).json()["id"]
            last = (await events_of(client, batch))[-1]["id"]
            for number in (last, last + 1_000):
                headers = {"Last-Event-ID": str(number)}
                async with asyncio.timeout(5):
                    answer = await client.get(f"/v1/batches/{batch}/events", headers=headers)
                assert answer.status_code == 204

    run(go())


def test_stream_that_has_nothing_to_tell_sends_comments(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(app, "_PING_S", 0.0)
    monkeypatch.setattr(app, "_LOOK_S", 0.05)

    async def go() -> None:
        judge = Gated()
        async with served(tmp_path, judge) as (client, _):
            batch = (await ask(client, [job()], wait=0)).json()["id"]
            asyncio.get_running_loop().call_later(0.5, judge.gate.set)
            text = (await client.get(f"/v1/batches/{batch}/events")).text
            assert "\n\n: the batch is not done\n\n" in text and "event: done" in text

    run(go())


def test_wait_that_is_too_short_is_answered_202(tmp_path) -> None:
    async def go() -> None:
        judge = Gated()
        async with served(tmp_path, judge) as (client, _):
            assert (await ask(client, [job()], wait=0.05)).status_code == 202
            judge.gate.set()

    run(go())


def test_delete_cancels_what_has_not_begun(tmp_path) -> None:
    async def go() -> None:
        judge = Gated()
        async with served(tmp_path, judge) as (client, _):
            answer = await ask(client, [job(str(number)) for number in range(6)], wait=0.2)
            batch, jobs = answer.json()["id"], answer.json()["jobs"]
            assert (await client.delete(f"/v1/jobs/{jobs[-1]['id']}")).json() == {"cancelled": 1}
            assert (await client.delete(f"/v1/batches/{batch}")).json() == {"cancelled": 3}
            judge.gate.set()
            events = await events_of(client, batch)
            assert [each["event"] for each in events].count("cancelled") == 4
            states = [
                each["state"] for each in (await client.get(f"/v1/batches/{batch}")).json()["jobs"]
            ]
            assert states == ["done"] * 2 + ["cancelled"] * 4
        assert len(judge.judged) == 2

    run(go())


BAD = {
    "no json": (b"{", 400, "is not JSON"),
    "not utf-8": (b"\xff\xfe", 400, "is not JSON"),
    "deep json": (b"[" * 200_000, 400, "is not JSON"),
    "no object": (b"[]", 422, "the document"),
    "no jobs": ({"jobs": []}, 422, "holds no job"),
    "no problem": (
        {"jobs": [{"kernel": {"source": "", "language": "cpp"}}]},
        422,
        "problem is missing",
    ),
    "unknown field": ({"jobs": [job(kernal=1)]}, 422, "did you mean kernel"),
    "source no text": ({"jobs": [job(5)]}, 422, "kernel.source is a text"),
    "unknown language": (
        {"jobs": [job(kernel={"source": "", "language": "ptx"})]},
        422,
        "does not know",
    ),
    "unknown problem": (
        {"jobs": [job(problem={"id": "Sample/L1/9", "digest": "0"})]},
        422,
        "has no problem 'Sample/L1/9'",
    ),
    "path": ({"jobs": [job(problem={"id": "/etc/passwd.py", "digest": "0"})]}, 422, "no problem"),
    "other digest": (
        {"jobs": [job(), job(problem={"id": SAMPLE_PROBLEM.id, "digest": "00"})]},
        422,
        f"job 1: .*{SAMPLE_PROBLEM.digest}.* and 00",
    ),
    "ruleset": ({"jobs": [job(ruleset="strict@00")]}, 422, "strict@00.*this server has strict@"),
    "device": ({"jobs": [job(device_kind="NVIDIA H100")]}, 422, "NVIDIA H100"),
    "timing": ({"jobs": [job(timing=False)]}, 422, "times correct kernels"),
    "seed": ({"jobs": [job(seed="xyz")]}, 422, "hexadecimal"),
    "deadline": ({"jobs": [job(deadline_s=0)]}, 422, "deadline_s"),
    "own source": (
        {"jobs": [job(problem={"id": "a", "digest": "b", "source": "import os"})]},
        403,
        "lacks it",
    ),
    "too many": ({"jobs": [job()] * 1025}, 413, "1024 jobs at most"),
    "too large": ({"jobs": [job("x" * (1 << 20))]}, 413, "bytes at most"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_request_is_refused_with_a_sentence_and_queues_nothing(tmp_path, name) -> None:
    body, status, told = BAD[name]

    async def go() -> None:
        async with served(tmp_path) as (client, service):
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"content-type": "application/json"}
            answer = await client.post("/v1/jobs?wait=5", content=content, headers=headers)
            assert answer.status_code == status, answer.text
            message = answer.json()["error"]["message"]
            assert re.search(told, message), message
            assert "\n" not in message and len(message) < 600
            assert not service.store.counts()

    run(go())


def test_body_without_a_length_is_read_no_further_than_the_limit(tmp_path) -> None:
    read = 0

    async def endless():
        nonlocal read
        while True:
            read += 1
            yield b" " * 65536

    async def go() -> None:
        async with served(tmp_path) as (client, _):
            headers = {"content-type": "application/json"}
            answer = await client.post("/v1/jobs", content=endless(), headers=headers)
            assert answer.status_code == 413 and read <= 18

    run(go())


def test_web_page_cannot_reach_a_server_without_keys(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            named = await client.get("/v1/info", headers={"Host": "evil.example:8765"})
            assert named.status_code == 403
            form = await client.post(
                "/v1/jobs", content=b"{}", headers={"content-type": "text/plain"}
            )
            assert form.status_code == 415

    run(go())


def test_request_that_is_not_offered_is_refused_like_others(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            for method, path, status in (("GET", "/v1/nope", 404), ("PUT", "/v1/jobs", 405)):
                answer = await client.request(method, path)
                assert answer.status_code == status
                assert f"{method} {path} is not a request" in answer.json()["error"]["message"]

    run(go())


def test_unknown_names_and_bad_headers_are_refused(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            for path in ("/v1/jobs/j", "/v1/batches/b", "/v1/batches/b/events"):
                assert (await client.get(path)).status_code == 404
            batch = (await ask(client, [job()])).json()["id"]
            bad = await client.get(f"/v1/batches/{batch}/events", headers={"Last-Event-ID": "x"})
            assert bad.status_code == 422
            assert (await client.get("/v1/info?timing=maybe")).status_code == 422
            assert (await ask(client, [job()], wait="soon")).status_code == 422
            assert (await ask(client, [job()], wait="nan")).status_code == 422
            long = {"Idempotency-Key": "k" * 201}
            assert (await ask(client, [job()], **long)).status_code == 422

    run(go())


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.yaml"
    tenants = (
        Tenant(name="ann", queued=4),
        Tenant(name="bob", roles=("judge", "problems"), languages=("cpp",)),
        Tenant(name="mon", roles=("admin",)),
        Tenant(name="old", expires="2020-01-01"),
        Tenant(name="slow", per_minute=2),
    )
    return path, {tenant.name: add_key(path, tenant) for tenant in tenants}


def test_requests_without_a_valid_key_are_refused(tmp_path, keys) -> None:
    path, by_name = keys

    async def go() -> None:
        async with served(tmp_path / "s", keys=path) as (client, _):
            for key in (None, "kg_wrong", by_name["old"]):
                assert (await ask(client, [job()], key=key)).status_code == 401
            assert (await ask(client, [job()], key=by_name["mon"])).status_code == 403
            for path_of_all in ("/healthz", "/readyz"):
                assert (await client.get(path_of_all)).status_code == 200
            for who, status in (("ann", 403), ("mon", 200)):
                headers = {"Authorization": f"Bearer {by_name[who]}"}
                assert (await client.get("/metrics", headers=headers)).status_code == status

    run(go())


def test_nothing_of_one_tenant_is_visible_to_another(tmp_path, keys) -> None:
    path, by_name = keys

    async def go() -> None:
        async with served(tmp_path / "s", keys=path) as (client, _):
            found = (await ask(client, [job()], key=by_name["ann"])).json()
            headers = {"Authorization": f"Bearer {by_name['bob']}"}
            batch = f"/v1/batches/{found['id']}"
            one = f"/v1/jobs/{found['jobs'][0]['id']}"
            for path_of_ann in (batch, f"{batch}/events", one):
                assert (await client.get(path_of_ann, headers=headers)).status_code == 404
            for path_of_ann in (batch, one):
                assert (await client.delete(path_of_ann, headers=headers)).status_code == 404

    run(go())


def test_problem_with_source_is_judged_for_the_role_problems_alone(tmp_path, keys) -> None:
    path, by_name = keys
    source = SAMPLE_PROBLEM.source + "\n# mine\n"
    from kernelgym.types import Problem

    own = Problem("Mine/L1/1", "Mine", 1, "mine", source)
    told = {"id": own.id, "digest": own.digest, "source": source, "suite": "Mine", "level": 1}
    cpp = {"source": "x", "language": "cpp"}

    async def go() -> None:
        judge = ScriptedEvaluator()
        async with served(tmp_path / "s", judge, keys=path) as (client, _):
            wanted = job(problem=told | {"name": "mine"}, kernel=cpp)
            assert (await ask(client, [wanted], key=by_name["ann"])).status_code == 403
            assert (await ask(client, [wanted], key=by_name["bob"])).status_code == 200
            assert judge.judged[0].problem == own
            triton = job(problem=told)
            assert (await ask(client, [triton], key=by_name["bob"])).status_code == 403
            broken = job(problem={"id": "a", "digest": "b", "source": "def ("}, kernel=cpp)
            assert (await ask(client, [broken], key=by_name["bob"])).status_code == 422

    run(go())


def test_limits_of_a_key_are_429_with_retry_after(tmp_path, keys) -> None:
    path, by_name = keys

    async def go() -> None:
        judge = Gated()
        async with served(tmp_path / "s", judge, keys=path) as (client, _):
            never = await ask(client, [job()] * 5, key=by_name["ann"])
            assert never.status_code == 413 and "send fewer" in never.json()["error"]["message"]
            fits = await ask(client, [job()] * 4, wait=0, key=by_name["ann"])
            assert fits.status_code == 202
            full = await ask(client, [job()] * 4, wait=0, key=by_name["ann"])
            assert full.status_code == 429 and int(full.headers["Retry-After"]) >= 1
            answers = [await ask(client, [job()], wait=0, key=by_name["slow"]) for _ in range(3)]
            assert [each.status_code for each in answers] == [202, 202, 429]
            assert int(answers[2].headers["Retry-After"]) >= 1
            judge.gate.set()

    run(go())


def test_full_state_folder_is_503_with_retry_after(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path, keeping=Keeping(most_gb=1e-6)) as (client, _):
            answer = await ask(client, [job()])
            assert answer.status_code == 503 and "Retry-After" in answer.headers

    run(go())


def test_server_that_ends_takes_no_jobs_and_ends_streams(tmp_path) -> None:
    async def go() -> None:
        judge, ending = Gated(), threading.Event()

        def prepare(service) -> None:
            service.is_ending = ending.is_set

        async with served(tmp_path, judge, prepare=prepare) as (client, _):
            batch = (await ask(client, [job()], wait=0)).json()["id"]
            asyncio.get_running_loop().call_later(0.1, ending.set)
            events = await events_of(client, batch)
            assert [each["event"] for each in events] in (["queued"], ["queued", "started"])
            assert (await ask(client, [job()])).status_code == 503
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/healthz")).status_code == 200
            judge.gate.set()

    run(go())


def test_error_of_the_evaluator_is_the_callers_or_unavailable(tmp_path) -> None:
    class Raising(ScriptedEvaluator):
        def submit(self, job, seed="") -> Future:
            if "usage" in job.kernel.source:
                raise UsageError("needs more memory than there is")
            raise OSError("the disk is gone")

    async def go() -> None:
        async with served(tmp_path, Raising()) as (client, _):
            found = (await ask(client, [job("usage"), job("other")])).json()["jobs"]
            assert found[0]["error"]["message"] == "needs more memory than there is"
            assert found[1]["verdict"]["status"] == "unavailable"
            assert "OSError" in found[1]["verdict"]["message"]

    run(go())


def test_info_tells_capabilities_and_limits_and_no_digest_of_the_key(tmp_path, keys) -> None:
    path, by_name = keys

    async def go() -> None:
        judge = ScriptedEvaluator(device_kind="H", provenance=("a", "b"))
        async with served(tmp_path / "s", judge, keys=path) as (client, _):
            headers = {"Authorization": f"Bearer {by_name['ann']}"}
            found = (await client.get("/v1/info", headers=headers)).json()
            assert capabilities_from(found["capabilities"]) == judge.capabilities
            assert found["devices"] == {"H": ["cpu"]} and found["key"]["roles"] == ["judge"]
            assert "sha256" not in json.dumps(found)

    run(go())


def test_metrics_count_verdicts_and_open_jobs(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            await ask(client, [job(), job("# verdict: wrong\n"), job()])
            text = (await client.get("/metrics")).text
            assert 'kernelgym_verdicts_total{status="correct"} 2' in text
            assert 'kernelgym_verdicts_total{status="wrong"} 1' in text
            assert "kernelgym_requeued_total 0" in text
            for line in text.splitlines():
                if line[0] != "#":
                    float(line.rpartition(" ")[2])

    run(go())


def test_openapi_describes_the_body_of_jobs(tmp_path) -> None:
    async def go() -> None:
        async with served(tmp_path) as (client, _):
            paths = (await client.get("/openapi.json")).json()["paths"]
            content = paths["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
            assert "jobs" in content["schema"]["properties"] and "$ref" not in json.dumps(content)

    run(go())


def test_client_that_leaves_a_stream_gives_its_place_free(tmp_path) -> None:
    async def go() -> None:
        judge = Gated()
        async with served(tmp_path, judge) as (client, service):
            batch = (await ask(client, [job()], wait=0)).json()["id"]
            stream = asyncio.create_task(events_of(client, batch))
            while not service.streams.total():
                await asyncio.sleep(0.01)
            stream.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stream
            assert service.streams.total() == 0
            judge.gate.set()

    run(go())
