"""Requests to a verdict service, sent again while failures may pass. Part of `remote`."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import ssl
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kernelgym import working_folder
from kernelgym.errors import UsageError

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "KERNELGYM_API_KEY"
"""Environment variable of the key, for evaluators that are not given one."""
MAY_PASS = (408, 429, 500, 502, 503, 504)
"""HTTP statuses after which a request is sent again."""
_TRUST = "to trust a certificate that no authority has signed, set SSL_CERT_FILE to its file"
_LONGEST_PAUSE_S = 5.0
_READ_S = 40.0  # longer than a request asks the server to wait


class GaveUp(Exception):
    """No answer that settles a request came within the patience, or the evaluator was closed.

    Args:
        why: The last failure.
        answered: Whether a server answered last, for example that requests come too often.
    """

    def __init__(self, why: str, *, answered: bool = False) -> None:
        super().__init__(why)
        self.answered = answered


class Refused(Exception):
    """The server refuses a request for good."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def check_address(url: str) -> None:
    """Refuse a text that is not an http or https address of a service.

    Raises:
        UsageError: If it is none.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address &= parts.port != 0  # reading it checks it
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(
            f"{url!r} is not an address of a verdict service; give one such as "
            "http://127.0.0.1:8765, or an evaluator such as LocalEvaluator()"
        )
    # httpx would send a user name as Basic authentication, in place of the key.
    if parts.username is not None:
        where = parts.netloc.rpartition("@")[2]
        raise UsageError(
            f"the address of the verdict service at {where} holds a user name; leave it out, and "
            f"give the key in {KEY_VARIABLE}"
        )


class ServiceClient:
    """Client of one service; several threads may use it.

    Args:
        url: Address of the service.
        key: Key of the service; None for the environment variable, or the file ``.env``.
        transport: Transport of httpx in place of the network.

    Raises:
        UsageError: If the address is not http or https or contains a user name, if the key is not
            valid in an HTTP header, or if httpx is not installed.
    """

    def __init__(
        self, url: str, key: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        check_address(url)
        if importlib.util.find_spec("httpx") is None:
            raise UsageError(
                f"asking the verdict service {url} needs httpx, which is not installed: "
                "pip install 'kernelgym[serve]'"
            )
        self.url, self.transport = url.rstrip("/"), transport
        self.key = None if key is None else working_folder.sendable_key(key, "the argument key")
        if key is None:
            # An invalid key is refused now, not at the first request.
            working_folder.key(KEY_VARIABLE)
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        """End all requests, waiting ones included."""
        with self._lock:
            self._closed.set()
            if self._client is not None:
                self._client.close()

    def http(self) -> httpx.Client:
        """Return the client of httpx.

        Raises:
            GaveUp: If this object was closed.
        """
        import httpx

        with self._lock:
            if self._closed.is_set():
                raise GaveUp("the evaluator was closed")
            if self._client is None:
                key = self.key if self.key is not None else working_folder.key(KEY_VARIABLE)
                self._client = httpx.Client(
                    headers={"Authorization": f"Bearer {key}"} if key else {},
                    timeout=httpx.Timeout(10.0, read=_READ_S, pool=None),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
                    transport=self.transport,
                )
            return self._client

    def ask(
        self, method: str, path: str, patience_s: float, content: bytes = b"", name: str = ""
    ) -> httpx.Response:
        """Return the answer to a request, which is sent again while failures may pass.

        Args:
            method: Method of HTTP.
            path: Path and query.
            patience_s: Seconds after which no further attempt is begun.
            content: Body, in JSON.
            name: Idempotency key.

        Raises:
            Refused: If the server refuses the request for good.
            GaveUp: If the patience has ended or the evaluator was closed.
        """
        import httpx

        headers = {"Content-Type": "application/json", "Idempotency-Key": name} if name else {}
        end, pause_s = time.monotonic() + patience_s, 0.1
        while True:
            wait_s = pause_s * random.uniform(0.8, 1.2)
            try:
                answer = self.http().request(
                    method, self.url + path, content=content, headers=headers
                )
            except httpx.TransportError as error:
                if _distrusts(error):
                    raise Refused(0, "certificate", f"{error}; {_TRUST}") from None
                why, answered = f"{type(error).__name__}: {error}", False
            except RuntimeError as error:  # the client was closed meanwhile
                raise GaveUp(f"the evaluator was closed ({error})") from None
            else:
                if answer.is_success:
                    return answer
                refusal = _refusal(answer)
                if answer.status_code not in MAY_PASS:
                    raise refusal
                why, answered = str(refusal), True
                with contextlib.suppress(ValueError):
                    wait_s = max(wait_s, float(answer.headers.get("retry-after", "0")))
            if time.monotonic() + wait_s > end:
                raise GaveUp(f"{why} (tried for {patience_s:g} s)", answered=answered)
            self._closed.wait(wait_s)
            pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)


def _distrusts(error: BaseException | None) -> bool:
    """Return True if an error was caused by a certificate that is not trusted."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _refusal(answer: httpx.Response) -> Refused:
    """Return the error for a server's refusal, with the server's sentence."""
    try:
        error = answer.json()["error"]
        return Refused(answer.status_code, str(error["code"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return Refused(answer.status_code, "", f"HTTP status {answer.status_code}")
