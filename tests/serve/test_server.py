"""The server's process: addresses, signals, kills, silent connections."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import time

import httpx
import pytest

from kernelgym import RemoteEvaluator, UsageError
from kernelgym.serve import server
from kernelgym.serve.app import VerdictService
from kernelgym.serve.server import OUTSIDE_TIER, Listening, run_server
from kernelgym.serve.store import JobStore
from kernelgym.testing import SAMPLE_PROBLEM, ScriptedEvaluator
from kernelgym.types import Kernel
from support.serve_process import serving
from support.served import job


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_neither_keys_nor_a_sandbox(host) -> None:
    assert Listening(host).isolation(has_keys=False) == "auto"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "judge", ""])
def test_other_address_needs_keys_and_a_sandbox_unless_insecure(host) -> None:
    with pytest.raises(UsageError, match="there are no keys"):
        Listening(host).isolation(has_keys=False)
    assert Listening(host).isolation(has_keys=True) == OUTSIDE_TIER
    assert Listening(host, insecure=True).isolation(has_keys=False) == "auto"


def test_address_that_is_taken_is_a_usage_error(tmp_path) -> None:
    store = JobStore(tmp_path)
    service = VerdictService(store, ScriptedEvaluator())
    with contextlib.closing(store), socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UsageError, match="cannot listen on"):
            run_server(service, Listening(port=taken.getsockname()[1]))
        with pytest.raises(UsageError, match="0 to 65535"):
            run_server(service, Listening(port=99999))


def test_listening_socket_names_tcp_so_that_asyncio_sends_answers_at_once() -> None:
    with server._bound(Listening(port=0)) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_tls_files_that_are_missing_are_a_usage_error(tmp_path) -> None:
    with contextlib.closing(JobStore(tmp_path)) as store:
        listening = Listening(port=0, certificate="/no/cert", private_key="/no/key")
        with pytest.raises(UsageError, match=r"TLS file .* cannot be read"):
            run_server(VerdictService(store, ScriptedEvaluator()), listening)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_tls_serves_those_that_trust_the_certificate_and_refuses_others(
    tmp_path, monkeypatch
) -> None:
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", "req", "-x509", *kind, *files, *names], check=True, stderr=-3)
    with serving(tmp_path / "s", tls=(certificate, key)) as (_, url):
        assert url.startswith("https://")
        with RemoteEvaluator(url) as remote, pytest.raises(UsageError, match="SSL_CERT_FILE"):
            _ = remote.capabilities
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with RemoteEvaluator(url) as remote:
            assert remote.evaluate(SAMPLE_PROBLEM, Kernel("a", "triton")).correct


def test_client_that_leaves_while_it_sends_leaves_no_error_in_the_log(tmp_path, capfd) -> None:
    with serving(tmp_path) as (_, url):
        where = ("127.0.0.1", int(url.rpartition(":")[2]))
        head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
        with socket.create_connection(where) as cut:
            cut.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
            time.sleep(0.2)
        assert httpx.get(f"{url}/healthz").status_code == 200
        time.sleep(0.2)
    assert "Traceback" not in capfd.readouterr().err


def post(url: str, count: int, key: str) -> dict:
    jobs = [job(str(number)) for number in range(count)]
    return httpx.post(
        f"{url}/v1/jobs", json={"jobs": jobs}, headers={"Idempotency-Key": key}
    ).json()


def wait_for(url: str, batch: str, done: int) -> dict:
    for _ in range(400):
        found = httpx.get(f"{url}/v1/batches/{batch}").json()
        if sum(each["state"] == "done" for each in found["jobs"]) >= done:
            return found
        time.sleep(0.05)
    raise AssertionError("the verdicts did not come")


def test_sigterm_drains_and_a_restart_judges_the_rest(tmp_path) -> None:
    with serving(tmp_path, 0.3) as (process, url):
        batch = post(url, 6, "k")["id"]
        wait_for(url, batch, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    store = JobStore(tmp_path)
    states = [each.state for each in store.batch("anonymous", batch).jobs]
    store.close()
    assert set(states) == {"done", "queued"}
    with serving(tmp_path) as (_, url):
        assert wait_for(url, batch, 6)["done"]


def test_killed_server_keeps_every_job_and_the_request_sent_again_is_the_same(tmp_path) -> None:
    with serving(tmp_path, 0.1) as (process, url):
        first = post(url, 8, "k")
        before = wait_for(url, first["id"], 2)
        process.kill()
    with serving(tmp_path) as (_, url):
        assert post(url, 8, "k")["id"] == first["id"]
        after = wait_for(url, first["id"], 8)
    given = [each for each in before["jobs"] if each["state"] == "done"]
    assert [each for each in after["jobs"] if each in given] == given


def test_second_server_on_the_same_state_ends_at_once(tmp_path) -> None:
    with serving(tmp_path), serving(tmp_path) as (second, url):
        assert second.wait(20) == 1 and url == ""


@pytest.mark.slow
def test_connections_that_send_nothing_are_closed_and_others_are_answered(tmp_path) -> None:
    with serving(tmp_path) as (_, url), contextlib.ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        silent = []
        for _ in range(1500):
            silent.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
        partial = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        partial.sendall(b"GET /healthz HTT")
        assert httpx.get(f"{url}/healthz").status_code == 200
        for each in (silent[0], silent[-1], partial):
            each.settimeout(20)
            assert each.recv(1) == b""
