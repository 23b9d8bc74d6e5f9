"""The request before the SDK: what is said when address, key or model are wrong."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernelgym import UsageError
from kernelgym_train.backends.tinker.server_probe import (
    HOSTED,
    KeptWeights,
    ServedModel,
    find_model,
    find_weights,
    reach,
    server_address,
)

MODELS = json.dumps({"supported_models": [{"model_name": "one", "max_context_length": 64}]})


@contextmanager
def answering(status=200, body=MODELS, headers=(), wait=None):
    """Serve one answer on loopback; yields its address and the keys that it was asked with."""
    keys = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            keys.append(self.headers["X-API-Key"])
            if wait is not None:
                wait.wait()
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            keys.append(json.loads(self.rfile.read(length)))
            self.do_GET()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", keys
    finally:
        if wait is not None:
            wait.set()
        server.shutdown()
        server.server_close()
        thread.join()


def test_models_come_with_their_contexts():
    with answering() as (url, keys):
        assert reach(url, "tml-key") == (ServedModel("one", 64),)
    assert keys == ["tml-key"]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, "<html>welcome</html>", "is not a Tinker server: it does not tell its models"),
        (200, "{}", "is not a Tinker server"),
        (200, '{"supported_models": [3]}', "is not a Tinker server"),
        (404, "", "is not a Tinker server: it answers with HTTP 404"),
        (401, "", "refuses the key"),
        (403, "", "refuses the key"),
        (402, "", "look at its status or your account"),
        (503, "", "look at its status or your account"),
    ],
)
def test_wrong_answer_is_told_with_the_fix(status, body, said):
    with answering(status, body) as (url, _), pytest.raises(UsageError, match=said) as caught:
        reach(url, "tml-key")
    assert url in str(caught.value) and "tml-key" not in str(caught.value)


def test_redirect_gets_no_key():
    with answering() as (other, keys):
        target = [("Location", f"{other}/api/v1/get_server_capabilities")]
        with answering(302, headers=target) as (url, _):
            with pytest.raises(UsageError, match="HTTP 302"):
                reach(url, "tml-key")
    assert keys == []


def test_refused_port_is_told():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"no Tinker server was reached at .*refused"):
            reach(url, "tml-key")


def test_unknown_host_is_told():
    with pytest.raises(
        UsageError, match=r"no Tinker server was reached at http://nowhere\.invalid"
    ):
        reach("http://nowhere.invalid", "tml-key")


def test_silent_server_is_given_up(monkeypatch):
    monkeypatch.setattr("kernelgym_train.backends.tinker.server_probe._PATIENCE_S", 0.2)
    wait = threading.Event()
    with answering(wait=wait) as (url, _):
        with pytest.raises(UsageError, match=r"no answer within 0.2 s|timed out"):
            reach(url, "tml-key")


def test_what_speaks_no_http_is_no_server():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet():
            peer, _ = listening.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"220 mail\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UsageError, match="its answer is not HTTP"):
            reach(url, "tml-key")
        thread.join()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:8004", "http://", "http://h:x"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(UsageError, match="is not an address of a server"):
        server_address(url)


def test_address_is_the_settings_then_the_sdks(monkeypatch):
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    assert server_address("") == HOSTED
    monkeypatch.setenv("TINKER_BASE_URL", "http://there:1/")
    assert server_address("") == "http://there:1"
    assert server_address("http://here:2/") == "http://here:2"


def test_hosted_address_is_the_sdks():
    found = importlib.util.find_spec("tinker")
    if found is None:
        pytest.skip("needs tinker")
    # Read, not imported: that takes seconds.
    source = (Path(found.origin).parent / "lib" / "base_url.py").read_text()
    assert f'DEFAULT_BASE_URL = "{HOSTED}"' in source


PATH = "tinker://a/weights/b"


def test_kept_weights_come_with_model_and_rank():
    told = json.dumps({"base_model": "one", "is_lora": True, "lora_rank": 8})
    with answering(body=told) as (url, asked):
        assert find_weights(url, "tml-key", PATH) == KeptWeights(PATH, "one", 8)
    assert asked == [{"tinker_path": PATH}, "tml-key"]
    with answering(body="{}") as (url, _):
        assert find_weights(url, "tml-key", PATH) == KeptWeights(PATH, "", None)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, "", f"has no {PATH}.*on another server, or deleted since"),
        (400, "", f"has no {PATH}"),
        (401, "", "refuses the key"),
        (503, "", "look at its status"),
        (200, "[]", f"does not tell what {PATH} is"),
    ],
)
def test_weights_a_server_lacks_are_refused(status, body, said):
    with answering(status, body) as (url, _), pytest.raises(UsageError, match=said):
        find_weights(url, "tml-key", PATH)


def test_model_is_found_by_name_or_folder(tmp_path, monkeypatch):
    served = (ServedModel("one", 64), ServedModel(str(tmp_path.resolve() / "start"), None))
    assert find_model(served, "one", "http://s") == served[0]
    (tmp_path / "start").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model(served, "start", "http://s") == served[1]
    assert find_model((), "any", "http://s") == ServedModel("any", None)


def test_model_that_is_not_served_is_refused():
    with pytest.raises(UsageError, match=r"model.id='two' is not served at http://s.*: one;"):
        find_model((ServedModel("one", None),), "two", "http://s")
