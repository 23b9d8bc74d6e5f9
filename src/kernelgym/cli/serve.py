"""``kernelgym serve``: serve verdicts over HTTP, and manage the keys of tenants."""

from __future__ import annotations

import contextlib
import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from kernelgym.cli.console import print_table, print_text, say
from kernelgym.cli.judging import ON_RAY, open_evaluator
from kernelgym.cli.options import MemoryOption
from kernelgym.errors import UsageError
from kernelgym.rulesets import Ruleset, precise_rules
from kernelgym.types import Evaluator

_LONGEST_EXPIRY_DAYS = 36_500


@dataclass(frozen=True, kw_only=True)
class ServeCommand(MemoryOption):
    """Serve verdicts over HTTP to RemoteEvaluator and other clients.

    "kernelgym serve --state DIR" serves on this machine alone. "kernelgym serve keys add NAME
    --keys FILE" prints a new key, once; "keys list" and "keys revoke NAME" show and remove
    keys. Limits of a key are edited in FILE. SIGTERM and Ctrl-C end the server once the kernels
    that it has begun are judged; all other jobs stay in DIR.
    """

    asked: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[keys add|list|revoke NAME]")
    ] = ()
    """Action: keys add NAME, keys list, or keys revoke NAME; empty to serve."""
    state: str = ""
    """Folder of jobs and verdicts; only one server at a time may use it."""
    keys: str = ""
    """YAML file of the keys; without it every request on loopback is answered."""
    host: str = "127.0.0.1"
    """Address to listen on. Any but loopback needs --keys and the sandbox landlock+seccomp."""
    port: int = 8765
    """Port to listen on; 0 for any that is free."""
    device: str = "cpu"
    """Device on which kernels run: cpu, a GPU such as cuda:0, or all for all GPUs."""
    workers: int | Literal["ray"] = 1
    """Number of kernels judged at the same time on each device; 4 keep a GPU busy. With ray, the
    actors of this machine's Ray cluster judge: 4 kernels at a time on each of its GPUs."""
    ruleset: str = "strict"
    """Rules of jobs that name none: strict or kernelbench. Jobs may name the other, too."""
    precision: str = ""
    """Precision in place of the ruleset's: own (the problem's), fp32, fp16 or bf16."""
    no_timing: bool = False
    """Judge correctness only."""
    verdict_cache: str = ""
    """Folder in which verdicts are kept; a kernel with a verdict in it is not judged again."""
    suites: tuple[str, ...] = ("KernelBench", "Synthetic")
    """Suites whose problems jobs may name: names, or folders of problem files."""
    keep_days: float = 7.0
    """Days for which results are kept."""
    max_state_gb: float = 10.0
    """Size of the state, in 10^9 bytes, above which the oldest results are deleted."""
    tls_certificate: str = ""
    """File of a TLS certificate with its chain; empty for plain HTTP."""
    tls_key: str = ""
    """File of the certificate's private key."""
    insecure: bool = False
    """Listen on any address without keys and without a sandbox: anyone who reaches it can run code
    here."""
    problems: bool = False
    """With keys add: the key's owner may send own problems, which run outside the sandbox."""
    admin: bool = False
    """With keys add: the key's owner may read /metrics."""
    expires_days: int = 0
    """With keys add: days after which the key is refused; 0 for never."""

    def run(self) -> int:
        """Serve, or add, list or revoke keys; return the exit code."""
        if self.asked:
            return self._keys()
        for name in ("problems", "admin", "expires_days"):
            if getattr(self, name):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} needs `kernelgym serve keys add NAME`")
        if not self.state:
            raise UsageError("`kernelgym serve` needs --state DIR, the folder of jobs and verdicts")
        if not (self.keep_days > 0 and self.max_state_gb > 0):
            raise UsageError(
                f"--keep-days and --max-state-gb must be above 0, got {self.keep_days:g} and "
                f"{self.max_state_gb:g}"
            )
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise UsageError("--tls-certificate and --tls-key are given together")
        try:
            import fastapi  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError:
            raise UsageError(
                "`kernelgym serve` needs FastAPI and uvicorn: pip install 'kernelgym[serve]'"
            ) from None
        return self._serve()

    def _serve(self) -> int:
        from kernelgym.serve.app import VerdictService
        from kernelgym.serve.keys import KeyRing
        from kernelgym.serve.runner import Keeping
        from kernelgym.serve.server import Listening, canary, run_server
        from kernelgym.serve.store import JobStore
        from kernelgym.suites import suite

        listening = Listening(
            self.host, self.port, self.insecure, self.tls_certificate, self.tls_key
        )
        keys = KeyRing(Path(self.keys) if self.keys else None)
        isolation = listening.isolation(bool(self.keys))
        listening.check_tls()
        suites = [suite(name) for name in self.suites]
        with contextlib.ExitStack() as stack:
            store = JobStore(Path(self.state))
            stack.callback(store.close)
            on_ray = self.workers == ON_RAY

            def make(rules: Ruleset, timing: bool) -> Evaluator:
                return open_evaluator(
                    self.device,
                    rules,
                    None if isinstance(self.workers, str) else self.workers,
                    timing,
                    self.memory,
                    self.verdict_cache,
                    ON_RAY if on_ray else "",
                    isolation,
                )

            evaluator = make(precise_rules(self.ruleset, self.precision), not self.no_timing)
            stack.callback(evaluator.close)
            job = canary(evaluator.capabilities)
            evaluator.submit(job).result()  # raises where the host lacks the sandbox
            keeping = Keeping(self.keep_days, self.max_state_gb)
            # Actors hold the cluster's GPUs, so none would be left for those of other rules.
            others = None if on_ray else make
            service = VerdictService(store, evaluator, others, suites, keys, job, keeping)
            service.any_host = self.insecure
            if store.requeued:
                say(f"{store.requeued} jobs that an earlier server had begun are queued again")
            if self.insecure and not listening.is_loopback:
                say("INSECURE: every machine that reaches this one can run code here")
            run_server(service, listening, lambda url: say(f"serving verdicts at {url}"))
        return 0

    def _keys(self) -> int:
        """Add, list or revoke keys."""
        from kernelgym.serve.keys import Role, Tenant, add_key, read_keys, revoke_key

        match self.asked:
            case ("keys", "list"):
                name = ""
            case ("keys", "add" | "revoke", name):
                pass
            case _:
                raise UsageError(
                    f"`kernelgym serve` takes keys add NAME, keys list or keys revoke NAME, got "
                    f"{' '.join(self.asked)!r}"
                )
        if not self.keys:
            raise UsageError(f"`kernelgym serve keys {self.asked[1]}` needs --keys FILE")
        path = Path(self.keys)
        if self.asked[1] == "revoke":
            revoke_key(path, name)
        elif self.asked[1] == "add":
            roles: list[Role] = ["judge"]
            roles += ["problems"] if self.problems else []
            roles += ["admin"] if self.admin else []
            if not 0 <= self.expires_days <= _LONGEST_EXPIRY_DAYS:
                raise UsageError(
                    "--expires-days must be 0 (the key never expires) or at most "
                    f"{_LONGEST_EXPIRY_DAYS}, got {self.expires_days}"
                )
            last = datetime.datetime.now(datetime.UTC) + datetime.timedelta(self.expires_days)
            expires = last.date().isoformat() if self.expires_days else ""
            key = add_key(path, Tenant(name=name, roles=tuple(roles), expires=expires))
            print(key)
            say(f"this is the key of {name!r}; it is shown once and cannot be read from {path}")
        else:
            rows = [
                (each.name, ", ".join(each.roles), str(each.priority), each.expires or "never")
                for each in read_keys(path)
            ]
            if rows:
                print_table(("name", "roles", "priority", "expires"), rows, str(path))
            else:
                print_text(f"{path} holds no keys")
        return 0
