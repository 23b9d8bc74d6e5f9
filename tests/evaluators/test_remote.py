"""`RemoteEvaluator` against a scripted transport and against real servers on loopback."""

from __future__ import annotations

import contextlib
import copy
import json
import multiprocessing
import pickle
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, wait

import httpx
import pytest

from kernelgym import Status, UsageError
from kernelgym.evaluators import remote as module
from kernelgym.evaluators.cached import CachedEvaluator
from kernelgym.evaluators.remote import RemoteEvaluator
from kernelgym.evaluators.wire import capabilities_data
from kernelgym.serve.keys import Tenant, add_key
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator, verdict
from kernelgym.types import Job, Kernel, Problem
from support.serve_process import serving

CAN = ScriptedEvaluator(device_kind="H", provenance=("p",)).capabilities


def kernel(text: str) -> Kernel:
    return Kernel(text, "triton")


def jobs(*texts: str) -> list[Job]:
    return [Job(SAMPLE_PROBLEM, kernel(text)) for text in texts]


@pytest.mark.parametrize("text", ["kg_secret\nx", "kg_sécret"])
def test_key_that_cannot_be_sent_is_refused_at_once_and_not_told(monkeypatch, text) -> None:
    with pytest.raises(UsageError, match="copy the key again") as told:
        RemoteEvaluator("http://127.0.0.1:9", text)
    assert "cret" not in str(told.value)
    monkeypatch.setenv("KERNELGYM_API_KEY", text)
    with pytest.raises(UsageError, match="the key in KERNELGYM_API_KEY"):
        RemoteEvaluator("http://127.0.0.1:9")


def test_address_with_a_password_is_refused_and_does_not_tell_it() -> None:
    with pytest.raises(UsageError, match="at host:9 holds a user name") as told:
        RemoteEvaluator("http://ann:secret@host:9")
    assert "secret" not in str(told.value)


class Server:
    """Scripted service: faults are answered first, one a request, then all is correct."""

    def __init__(self, *faults, info: dict | None = None, roles=("judge",)) -> None:
        data = {"ruleset": CAN.ruleset.label, "key": {"roles": list(roles)}}
        self.info = data | {"capabilities": capabilities_data(CAN)} | (info or {})
        self.faults, self.asked, self.lock = list(faults), [], threading.Lock()
        self.batches: dict[str, list[dict]] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        with self.lock:
            self.asked.append(request)
            fault = self.faults.pop(0) if self.faults and path != "/v1/info" else None
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return fault
        if path == "/v1/info":
            return httpx.Response(200, json=self.info)
        if path == "/v1/jobs":
            rows = json.loads(request.content)["jobs"]
            batch = request.headers["Idempotency-Key"]
            self.batches[batch] = [
                {"id": f"{batch}-{index}", "state": "done", "verdict": self.judged(row)}
                for index, row in enumerate(rows)
            ]
            ids = [{"id": row["id"]} for row in self.batches[batch]]
            return httpx.Response(202, json={"id": batch, "done": False, "jobs": ids})
        batch = path.split("/")[3]
        if path.endswith("/events"):
            return self.events(self.batches[batch])
        return httpx.Response(200, json={"id": batch, "done": True, "jobs": self.batches[batch]})

    def judged(self, row) -> dict:
        return verdict("correct", message=row["kernel"]["source"]).to_dict()

    def events(self, rows) -> httpx.Response:
        lines = [": hello\n"]
        for number, row in enumerate(rows, 1):
            data = json.dumps({"job": row["id"], "verdict": row["verdict"]})
            lines.append(f"id: {number}\nevent: verdict\ndata: {data}\n")
        text = "\n".join(lines) + "\n"
        return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})

    def posts(self) -> list[httpx.Request]:
        return [each for each in self.asked if each.url.path == "/v1/jobs"]


@contextlib.contextmanager
def connected(server, **options):
    with RemoteEvaluator("http://x", transport=httpx.MockTransport(server), **options) as remote:
        yield remote


def refused(status: int, code: str, message: str = "told by the server", **headers):
    error = {"error": {"code": code, "message": message}}
    return httpx.Response(status, json=error, headers=headers)


def test_capabilities_are_the_servers() -> None:
    with connected(Server()) as remote:
        assert remote.capabilities == CAN


def test_jobs_of_a_sequence_travel_in_one_request_and_come_back_in_order() -> None:
    server = Server()
    with connected(server) as remote:
        found = remote.evaluate_many(jobs("a", "b", "\ud800"))
        assert [each.message for each in found] == ["a", "b", "\ud800"]
        assert len(server.posts()) == 1
        assert sorted(index for index, _ in remote.evaluate_iter(iter(jobs("c", "d")))) == [0, 1]
        assert remote.evaluate_many([]) == []


def test_jobs_submitted_one_by_one_gather_while_a_request_is_under_way() -> None:
    server, go_on = Server(), threading.Event()
    judged = server.judged

    def judge(row) -> dict:
        if row["kernel"]["source"] == "first":
            assert go_on.wait(30.0)
        return judged(row)

    server.judged = judge  # type: ignore[method-assign]
    with connected(server) as remote:
        _ = remote.capabilities
        first = remote.submit(jobs("first")[0])
        while not server.posts():
            time.sleep(0.001)
        others = [remote.submit(each) for each in jobs(*map(str, range(200)))]
        go_on.set()
        assert [each.result().message for each in [first, *others]][::200] == ["first", "199"]
        counts = [len(json.loads(each.content)["jobs"]) for each in server.posts()]
        assert counts[0] == 1 and sum(counts) == 201 and len(counts) < 50


def test_many_jobs_are_split_by_number_and_by_size() -> None:
    server = Server()
    with connected(server) as remote:
        assert len(remote.evaluate_many(jobs(*map(str, range(1100))))) == 1100
        counts = [len(json.loads(each.content)["jobs"]) for each in server.posts()]
        assert sorted(counts) == [76, 1024]
        server.asked.clear()
        remote.evaluate_many(jobs(*(c * 400_000 for c in "abcde")))
        assert max(len(each.content) for each in server.posts()) <= 1 << 20


@pytest.mark.parametrize(
    "fault",
    [
        httpx.ConnectError("refused"),
        httpx.ReadError("cut"),
        httpx.RemoteProtocolError("closed"),
        httpx.Response(502, text="<html>"),
        refused(429, "too_often", **{"Retry-After": "0"}),
    ],
    ids=["connect", "read", "protocol", "502", "429"],
)
def test_failure_that_may_pass_is_tried_again_under_the_same_key(fault) -> None:
    server = Server(fault, fault)
    with connected(server) as remote:
        assert remote.evaluate(SAMPLE_PROBLEM, kernel("a")).correct
    keys = {each.headers["Idempotency-Key"] for each in server.posts()}
    assert len(server.posts()) == 3 and len(keys) == 1


def test_verdict_is_unavailable_once_the_patience_has_ended() -> None:
    server = Server(*[httpx.ConnectError("refused")] * 99)
    with connected(server, patience_s=0.3) as remote:
        found = remote.evaluate(SAMPLE_PROBLEM, kernel("a"))
    assert found.status is Status.UNAVAILABLE and "refused" in found.message
    assert found.findings[0].code == "service_unreachable"
    assert found.ruleset == CAN.ruleset.label


def test_refusal_is_a_usage_error_of_the_job_that_it_concerns() -> None:
    class Strict(Server):
        def __call__(self, request):
            if b"bad" in request.content:
                return refused(422, "language")
            return super().__call__(request)

    with connected(Strict()) as remote:
        futures = [remote.submit(job) for job in jobs("a", "bad", "c", "d")]
        with pytest.raises(UsageError, match="told by the server"):
            futures[1].result(20)
        assert [futures[place].result(20).message for place in (0, 2, 3)] == ["a", "c", "d"]
        with pytest.raises(UsageError, match="told by the server"):
            remote.evaluate_many(jobs("a", "bad"))


def test_source_of_a_problem_is_sent_only_if_the_server_lacks_it_and_the_key_may() -> None:
    own = Problem("Mine/1", "Mine", 1, "mine", SAMPLE_PROBLEM.source + "#")
    server = Server(refused(422, "unknown_problem"), roles=("judge", "problems"))
    with connected(server) as remote:
        assert remote.evaluate(own, kernel("a")).correct
        sent = [json.loads(each.content)["jobs"][0]["problem"] for each in server.posts()]
        assert [each["source"] for each in sent] == [None, own.source]
        keys = {each.headers["Idempotency-Key"] for each in server.posts()}
        assert len(keys) == 2, "another body needs another key"
    with connected(Server(refused(422, "unknown_problem"))) as remote:
        with pytest.raises(UsageError, match="told by the server"):
            remote.evaluate(own, kernel("a"))


def test_events_that_a_proxy_holds_back_are_replaced_by_polling(monkeypatch) -> None:
    monkeypatch.setattr(module, "_POLL_S", 0.01)

    class Proxy(Server):
        def events(self, rows):
            raise httpx.ReadTimeout("silent")

    with connected(Proxy()) as remote:
        assert len(remote.evaluate_many(jobs("a", "b"))) == 2

    class Page(Server):
        def events(self, rows):
            return httpx.Response(200, text="<html>")

    with connected(Page()) as remote:
        assert len(remote.evaluate_many(jobs("a", "b"))) == 2


def test_events_that_are_cut_off_continue_after_the_last_one(monkeypatch) -> None:
    monkeypatch.setattr(module, "_RESUME_S", 0.0)

    class Cut(Server):
        def __call__(self, request):
            if request.url.path.count("/") == 3 and not self.first:
                return httpx.Response(200, json={"id": "b", "done": False, "jobs": []})
            return super().__call__(request)

        first = False

        def events(self, rows):
            return super().events(
                rows[:1] if self.asked[-1].headers["Last-Event-ID"] == "0" else rows
            )

    server = Cut()
    with connected(server) as remote:
        assert len(remote.evaluate_many(jobs("a", "b"))) == 2
    streams = [each for each in server.asked if each.url.path.endswith("/events")]
    assert [each.headers["Last-Event-ID"] for each in streams] == ["0", "1"]


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({"ruleset": "strict@00000000"}, "verdicts would not be comparable"),
        ({"capabilities": {"device": "cpu"}}, "cannot be read"),
        ({"capabilities": None}, "cannot be read"),
    ],
)
def test_server_of_other_rules_or_version_is_refused(info, told) -> None:
    with connected(Server(info=info)) as remote:
        with pytest.raises(UsageError, match=told):
            remote.evaluate(SAMPLE_PROBLEM, kernel("a"))


def test_ruleset_with_a_shipped_name_and_other_fields_is_refused() -> None:
    import dataclasses

    other = dataclasses.replace(CAN.ruleset, min_calls=2)
    can = dataclasses.replace(CAN, ruleset=other)
    info = {"capabilities": capabilities_data(can), "ruleset": other.label}
    with connected(Server(info=info)) as remote:
        with pytest.raises(UsageError, match=f"{other.digest}.*{CAN.ruleset.label}"):
            _ = remote.capabilities


@pytest.mark.parametrize(
    "url", ["", "judge:8765", "ftp://judge", "http://", "http://a:b", "http://["]
)
def test_address_that_is_none_is_refused(url) -> None:
    with pytest.raises(UsageError, match="not an address of a verdict service"):
        RemoteEvaluator(url)


def test_service_without_httpx_is_a_usage_error_that_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(UsageError, match=r"needs httpx.*pip install 'kernelgym\[serve\]'"):
        RemoteEvaluator("http://127.0.0.1:9")


def test_missing_server_is_a_usage_error_when_it_is_first_asked(monkeypatch) -> None:
    with RemoteEvaluator("http://127.0.0.1:9", patience_s=0.2) as remote:
        with pytest.raises(UsageError, match="no verdict service answers at"):
            _ = remote.capabilities


def test_object_pickles_and_copies_deeply_to_itself_and_hides_its_key() -> None:
    remote = RemoteEvaluator("http://x:1/", "kg_secret", patience_s=3)
    again = pickle.loads(pickle.dumps(remote))
    assert (again.url, again.patience_s, again._client.key) == ("http://x:1", 3, "kg_secret")
    assert copy.deepcopy(remote) is remote and "secret" not in repr(remote)


def test_key_comes_from_the_environment_if_none_is_given(monkeypatch) -> None:
    monkeypatch.setenv("KERNELGYM_API_KEY", "kg_env")
    for key, wanted in ((None, "Bearer kg_env"), ("kg_own", "Bearer kg_own")):
        server = Server()
        with connected(server, key=key) as remote:
            _ = remote.capabilities
        assert server.asked[0].headers["Authorization"] == wanted


def test_key_in_the_working_folders_env_file_is_found(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("KERNELGYM_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("KERNELGYM_API_KEY=kg_file\n")
    server = Server()
    with connected(server) as remote:
        _ = remote.capabilities
    assert server.asked[0].headers["Authorization"] == "Bearer kg_file"


def test_ruleset_and_timing_that_are_asked_for_travel_with_every_job() -> None:
    import dataclasses

    wanted = dataclasses.replace(CAN.ruleset, stop_at_first_failure=True)
    can = dataclasses.replace(CAN, ruleset=wanted, timed=False)
    server = Server(info={"capabilities": capabilities_data(can), "ruleset": wanted.label})
    with connected(server, ruleset=wanted, timing=False) as remote:
        again = pickle.loads(pickle.dumps(remote))
        assert (again._ruleset, again._timing) == (wanted, False)
        assert remote.evaluate(SAMPLE_PROBLEM, kernel("a")).correct
    asked = server.asked[0].url.params
    assert (asked["ruleset"], asked["timing"]) == (wanted.label, "false")
    row = json.loads(server.posts()[0].content)["jobs"][0]
    assert (row["ruleset"], row["timing"]) == (wanted.label, False)
    with connected(Server(), ruleset=wanted) as remote:
        with pytest.raises(UsageError, match=f"{CAN.ruleset.label}.*{wanted.label}"):
            _ = remote.capabilities


def test_kernel_that_fits_into_no_request_is_rejected_and_spoils_no_other() -> None:
    class Limited(Server):
        def __call__(self, request):
            if len(request.content) > 1 << 20:
                return refused(413, "too_large")
            return super().__call__(request)

    with connected(Limited()) as remote:
        found = remote.evaluate_many(jobs("a", "\ud800" * 200_000))
    assert [each.status for each in found] == [Status.CORRECT, Status.REJECTED]
    assert found[1].findings[0].code == "too_large" and found[1].ruleset == CAN.ruleset.label


def test_verdict_cache_in_front_asks_once_and_again_if_the_provenance_differs(tmp_path) -> None:
    import dataclasses

    other = dataclasses.replace(CAN, provenance=("q",))
    servers = [Server(), Server(info={"capabilities": capabilities_data(other)})]
    for server in servers:
        with connected(server) as remote:
            cached = CachedEvaluator(remote, tmp_path)
            for _ in range(2):
                assert cached.evaluate(SAMPLE_PROBLEM, kernel("a")).correct
    assert [len(server.posts()) for server in servers] == [1, 1]


def test_closed_evaluator_takes_no_job_and_jobs_in_flight_become_unavailable() -> None:
    server = Server(*[httpx.ConnectError("refused")] * 999)
    with connected(server) as remote:
        _ = remote.capabilities
        future = remote.submit(jobs("a")[0])
        time.sleep(0.05)
    assert future.result(20).status is Status.UNAVAILABLE
    remote.close()
    with pytest.raises(UsageError, match="closed"):
        remote.submit(jobs("a")[0])


def test_verdicts_come_from_a_server_and_survive_its_kill(tmp_path) -> None:
    texts = ["# verdict: wrong\n", *(f"n{number}" for number in range(9))]
    with serving(tmp_path, 0.1) as (process, url), RemoteEvaluator(url) as remote:
        found = {}
        for index, given in remote.evaluate_iter(jobs(*texts)):
            found[index] = given
            if len(found) == 2:
                process.kill()
                process.wait()
                port = int(url.rpartition(":")[2])
                again = contextlib.ExitStack()
                again.enter_context(serving(tmp_path, 0.0, port))
        again.close()
    assert found[0].status is Status.WRONG and len(found) == 10
    assert all(found[place].correct for place in range(1, 10))


def test_forked_process_judges_over_connections_of_its_own(tmp_path) -> None:
    with serving(tmp_path) as (_, url), RemoteEvaluator(url) as remote:
        assert remote.evaluate(SAMPLE_PROBLEM, kernel("a")).correct
        context = multiprocessing.get_context("fork")
        told = context.SimpleQueue()
        child = context.Process(
            target=lambda: told.put(remote.evaluate(SAMPLE_PROBLEM, kernel("b")).status)
        )
        child.start()
        child.join(20)
        assert child.exitcode == 0 and told.get() == "correct"
        assert remote.evaluate(SAMPLE_PROBLEM, kernel("e")).correct


def test_cancelled_jobs_are_taken_back_from_the_server(tmp_path) -> None:
    with serving(tmp_path, 0.3) as (_, url), RemoteEvaluator(url) as remote:
        futures = [remote.submit(job) for job in jobs(*map(str, range(20)))]
        wait(futures, 20, FIRST_COMPLETED)  # two requests are under way, in any order
        for future in futures:
            future.cancel()
        for _ in range(200):
            text = httpx.get(f"{url}/metrics").text
            if 'state="queued"' not in text and 'state="started"' not in text:
                break
            time.sleep(0.05)
        counted = [
            line for line in text.splitlines() if line.startswith("kernelgym_verdicts_total")
        ]
        assert sum(int(line.split()[-1]) for line in counted) < 6


def test_key_that_the_server_does_not_know_is_a_usage_error(tmp_path) -> None:
    key = add_key(tmp_path / "keys.yaml", Tenant(name="ann"))
    with serving(tmp_path / "s", keys=tmp_path / "keys.yaml") as (_, url):
        with RemoteEvaluator(url, "kg_wrong") as remote:
            with pytest.raises(UsageError, match="unknown or expired"):
                remote.evaluate(SAMPLE_PROBLEM, kernel("a"))
        with RemoteEvaluator(url, key) as remote:
            assert remote.evaluate(SAMPLE_PROBLEM, kernel("a"), seed="ab").seed == "ab"


def test_more_jobs_than_a_key_may_queue_are_sent_in_parts(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    key = add_key(path, Tenant(name="ann", queued=3))
    with serving(tmp_path / "s", keys=path) as (_, url), RemoteEvaluator(url, key) as remote:
        found = remote.evaluate_many(jobs(*(f"# {n}" for n in range(10))))
    assert [each.status for each in found] == [Status.CORRECT] * 10


def test_server_that_answers_429_for_long_is_not_told_to_be_absent(tmp_path) -> None:
    path = tmp_path / "keys.yaml"
    key = add_key(path, Tenant(name="ann", per_minute=1))
    with serving(tmp_path / "s", keys=path) as (_, url), RemoteEvaluator(url, key) as first:
        assert first.capabilities.device
        with RemoteEvaluator(url, key, patience_s=0.5) as second:
            with pytest.raises(UsageError, match="answers no request for now: this key allows 1"):
                _ = second.capabilities
