"""A Hugging Face hub on this machine: models from memory over HTTP, for ``HF_ENDPOINT``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class FakeHub:
    """A hub's models: the bytes of their files by name, by the model's name."""

    models: Mapping[str, Mapping[str, bytes]]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    """Paths that were asked for."""

    def revision(self, name: str) -> str:
        """Return the model's commit."""
        return hashlib.sha1(repr(sorted(self.models[name].items())).encode()).hexdigest()

    def info(self, name: str) -> dict[str, object]:
        """Return what the hub's API says of a model."""
        files = self.models[name]
        siblings = [
            {"rfilename": file, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
            for file, data in files.items()
        ]
        return {
            "_id": "1",
            "id": name,
            "modelId": name,
            "sha": self.revision(name),
            "private": False,
            "gated": False,
            "siblings": siblings,
        }

    def tree(self, name: str) -> list[dict[str, object]]:
        """Return what the hub's API says of a model's files."""
        return [
            {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for path, data in self.models[name].items()
        ]


@contextlib.contextmanager
def serve_hub(models: Mapping[str, Mapping[str, bytes]]) -> Iterator[FakeHub]:
    """Serve a hub's models over HTTP for a block."""
    hub = FakeHub(models)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            path = unquote(urlsplit(self.path).path).strip("/")
            hub.asked.append(path)
            api = path.startswith("api/models/")
            path = path.removeprefix("api/models/")
            name = next((n for n in hub.models if path == n or path.startswith(f"{n}/")), None)
            rest = [] if name is None else path[len(name) :].strip("/").split("/", 2)
            file = rest[2] if len(rest) == 3 and rest[0] == "resolve" else ""
            body, more = b"", {}
            if name is None or (file and file not in hub.models[name]):
                self._send(
                    404, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"}
                )
                return
            if api and rest[0] == "tree":
                body = json.dumps(hub.tree(name)).encode()
            elif api:
                body = json.dumps(hub.info(name)).encode()
            else:
                body = hub.models[name][file]
                more = {
                    "ETag": f'"{hashlib.sha1(body).hexdigest()}"',
                    "X-Repo-Commit": hub.revision(name),
                }
            self._send(200, body, more, with_body)

        def _send(
            self, code: int, body: bytes, more: Mapping[str, str], with_body: bool = True
        ) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            for key, value in more.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body and self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
