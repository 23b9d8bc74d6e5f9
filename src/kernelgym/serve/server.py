"""Starts the service: what it may listen on, the connections it keeps, and its end.

Contract:

- without keys it listens on loopback only; on another address it needs keys, and a sandbox of at
  least `OUTSIDE_TIER`. `Listening.insecure` lifts both;
- SIGTERM and Ctrl-C drain: no new jobs are taken, streams and waiting requests end, kernels that
  are being judged are finished, and all other jobs stay queued in the state folder;
- connections that send no request are closed (`kernelgym.serve.connections`).
"""

from __future__ import annotations

import ipaddress
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI

from kernelgym.errors import UsageError
from kernelgym.serve.app import VerdictService, create_app
from kernelgym.serve.connections import SILENT_S, Connections, WatchedApp
from kernelgym.testing import SAMPLE_KERNELS, SAMPLE_PROBLEM
from kernelgym.types import Capabilities, Job

OUTSIDE_TIER = "require:landlock+seccomp"
"""Weakest sandbox tier that a server needs if other machines reach it."""
_GRACE_S = 10


@dataclass(frozen=True, slots=True)
class Listening:
    """Address at which a server listens, with its TLS files."""

    host: str = "127.0.0.1"
    """Host name or numeric address to listen on."""
    port: int = 8765
    """Port to listen on; 0 for any that is free."""
    insecure: bool = False
    """Whether the server may listen beyond loopback without keys and without the sandbox."""
    certificate: str = ""
    """File of the TLS certificate, with its chain; empty for plain HTTP."""
    private_key: str = ""
    """File of the certificate's private key."""

    @property
    def is_loopback(self) -> bool:
        """True if only this machine reaches the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def isolation(self, has_keys: bool) -> str:
        """Return the kind of sandbox in which the evaluator must run kernels.

        Args:
            has_keys: Whether the server has a file of keys.

        Raises:
            UsageError: If the server may not listen there.
        """
        if self.is_loopback or self.insecure:
            return "auto"
        if not has_keys:
            raise UsageError(
                f"--host {self.host} is reached from other machines, and there are no keys: give "
                "--keys FILE (`kernelgym serve keys add NAME --keys FILE`), or --insecure to let "
                "every machine that reaches this one run code here"
            )
        return OUTSIDE_TIER

    def check_tls(self) -> None:
        """Refuse TLS files that cannot be used, before anything is started.

        Raises:
            UsageError: If a file cannot be read, or they are not a certificate and its key.
        """
        for path in filter(None, (self.certificate, self.private_key)):
            try:
                with open(path, "rb"):
                    pass
            except OSError as error:
                raise UsageError(
                    f"the TLS file {path!r} cannot be read: {error.strerror}; give PEM files by "
                    "--tls-certificate and --tls-key"
                ) from None
        if self.certificate:
            try:
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                    self.certificate, self.private_key, password=""
                )
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise UsageError(
                    f"{self.certificate!r} and {self.private_key!r} must be a TLS certificate "
                    f"and its private key, in PEM, the key without a password: {error}"
                ) from None


def canary(can: Capabilities) -> Job:
    """Return a small job that an evaluator of these capabilities can judge."""
    return Job(SAMPLE_PROBLEM, SAMPLE_KERNELS[can.languages[0]])


def run_server(
    service: VerdictService, listening: Listening, started: Callable[[str], None] = lambda _: None
) -> None:
    """Serve until SIGTERM or Ctrl-C; closes the service.

    Args:
        service: The parts of the service.
        listening: Address to listen on.
        started: Function that is called with the server's address.

    Raises:
        UsageError: As `run_app`.
        KeyboardInterrupt: After the drain that a signal has asked for.
    """
    app = create_app(service)

    def begun(url: str, is_ending: Callable[[], bool]) -> None:
        service.is_ending = is_ending
        started(url)

    run_app(app, listening, begun)


def run_app(
    app: FastAPI,
    listening: Listening,
    started: Callable[[str, Callable[[], bool]], None],
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Serve an application until SIGTERM or Ctrl-C, or until it is over.

    Args:
        app: The application.
        listening: Address to listen on.
        started: Function that is called with the server's address, and a function that returns True
            once the server is about to end.
        is_over: Function, asked every second, that returns True once the server is not needed any
            more. Requests that have begun are answered first.

    Raises:
        UsageError: If the address cannot be taken, or a file of TLS cannot be used.
        KeyboardInterrupt: After the drain that a signal has asked for.
    """
    _raise_file_limit()
    bound, connections = _bound(listening), Connections()

    async def look() -> None:
        await connections.close_silent()
        server.should_exit |= is_over()

    try:
        config = uvicorn.Config(
            WatchedApp(app, connections),
            http=connections.protocol(),
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(SILENT_S),
            timeout_graceful_shutdown=_GRACE_S,
            timeout_notify=1,
            callback_notify=look,
            ssl_certfile=listening.certificate or None,
            ssl_keyfile=listening.private_key or None,
        )
        listening.check_tls()
        config.load()
        server = uvicorn.Server(config)
        scheme = "https" if listening.certificate else "http"
        host = f"[{listening.host}]" if ":" in listening.host else listening.host
        url = f"{scheme}://{host}:{bound.getsockname()[1]}"
        started(url, lambda: bool(server.should_exit))
        server.run(sockets=[bound])
    finally:
        bound.close()


def _bound(listening: Listening) -> socket.socket:
    """Return a bound socket that listens; connections wait until the server has started."""
    if not 0 <= listening.port < 1 << 16:  # the resolver takes it modulo 65,536
        raise UsageError(f"cannot listen on port {listening.port}: ports are 0 to 65535")
    try:
        (found, *_) = socket.getaddrinfo(
            listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # Without the protocol, asyncio sets no TCP_NODELAY, and answers are 40 ms late.
        bound = socket.socket(*found[:3])
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(found[4])
            bound.listen(2048)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot listen on {listening.host} port {listening.port}: {error}; give another "
            "--host or --port"
        ) from None
    return bound


def _raise_file_limit() -> None:
    """Allow as many open files, and so connections, as the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
