"""The policy ``openai``: any endpoint of the chat or responses API.

Contract: the client's own retries are used (408, 409, 429, 5xx, resets, timeouts; ``Retry-After``
and jitter) and counted in `Generation.tries`. A request that fails after all retries is a
`ProviderFailure`, which costs one answer. A key, address or model that the server refuses is a
`UsageError`; an empty account, or `_FAILED_IN_A_ROW` failures without an answer between them, is a
`RunStopped`. A request has one answer: ``n`` is never used.

Two habits of servers are learned from their first refusal: a model without a system role gets that
text in front of the user's, and one that refuses ``max_tokens`` gets ``max_completion_tokens``.

Prices are not handled here but in `kernelgym.benchmark.run.spending`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from kernelgym import working_folder
from kernelgym.benchmark.run.generations import AnswerRequest, Generation
from kernelgym.benchmark.run.options import PolicyOptions, json_object
from kernelgym.benchmark.run.policies import EvalPolicy, ProviderFailure, RunStopped
from kernelgym.benchmark.run.replies import chat_reply, responses_reply
from kernelgym.errors import UnknownName, UsageError
from kernelgym.rate_limit import RateLimit
from kernelgym.tokens import estimate_tokens
from kernelgym.types import Message

DEFAULT_MAX_TOKENS = 8192
"""Default of the largest number of tokens of an answer, thinking included."""
_MOST_BYTES = 64 << 20  # of an answer
_POLL_S = 0.05
_CONNECTION = ("api", "timeout_s", "retries", "rpm", "tpm")
_SAMPLED = (*("temperature", "top_p", "max_tokens", "reasoning_effort", "extra_body", "seeded"),)
_ENDPOINT = "https://api.openai.com/v1"
_ADDRESS = "OPENAI_BASE_URL"
_KEY = "OPENAI_API_KEY"
_FAILED_IN_A_ROW = 16
_NO_CLIENT = "policy 'openai' needs the package `openai`; run pip install 'kernelgym[eval]'"
_SHORTEST = {"role": "user", "content": "1"}
_CHECK_TRIES = 3
_MOST_DELAY_S = 8.0
_CONNECT_S = 5.0
_CHECK_S = 6.0
"""Seconds for all tries of a check, so that a silent server is reported within 10 s."""
_NO_SYSTEM = re.compile(r"system role|role.{0,20}system|only user and assistant", re.IGNORECASE)
_OTHER_LIMIT = re.compile(r"max_completion_tokens")
_TOO_LONG = re.compile(r"context.{0,20}(length|window|size)|too (long|many tokens)", re.IGNORECASE)
_MODEL = re.compile(r"\bmodel\b", re.IGNORECASE)
_FILTER = re.compile(r"content_filter|content_policy|content management policy", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSampling:
    """Sampling options of an endpoint; None leaves an option to the server."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    """Largest number of tokens of an answer, thinking included."""
    reasoning_effort: str | None = None
    seeded: bool = False
    """True if each request carries its own seed (chat API)."""
    extra_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Additional fields of the request's body."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"--max-tokens must be at least 1, got {self.max_tokens}")
        if self.temperature is not None and self.temperature < 0.0:
            raise UsageError(f"--temperature must not be negative, got {self.temperature:g}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"--top-p must lie in (0, 1], got {self.top_p:g}")
        for name in ("model", "messages", "input", "n", "stream"):
            if name in self.extra_body:
                raise UsageError(
                    f"--extra-body must not set {name!r}: a run decides it; leave it out"
                )

    def settings(self) -> dict[str, Any]:
        """Return the options as JSON data for a plan."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return found | {"extra_body": dict(self.extra_body)}


class _CutBody(Exception):
    """A successful reply has a body that is cut short, not JSON, too large or too slow."""


class OpenAIPolicy(EvalPolicy):
    """Policy that requests answers from an OpenAI-compatible endpoint.

    Args:
        model: The model's name at the endpoint. endpoint: The API's address, such as
        ``http://localhost:8000/v1``. api: ``chat`` or ``responses``. key: API key; local servers
        often accept any. missing: Message about a missing key; empty if no key is needed or one is
        given. sampling: Sampling options. timeout_s: Seconds that one request may take. retries:
        Number of times that a failed request is made again. rpm: Largest number of requests in a
        minute, retries included; None for no limit. tpm: Largest number of tokens in a minute, an
        answer counted as `EndpointSampling.max_tokens`.

    Raises:
        UsageError: If an argument makes no sense, or the package `openai` is missing.
    """

    def __init__(
        self,
        model: str,
        endpoint: str = _ENDPOINT,
        *,
        api: Literal["chat", "responses"] = "chat",
        key: str = "none",
        missing: str = "",
        sampling: EndpointSampling | None = None,
        timeout_s: float = 600.0,
        retries: int = 6,
        rpm: float | None = None,
        tpm: float | None = None,
    ) -> None:
        if not re.match(r"https?://[^/\s]+", endpoint):
            raise UsageError(
                f"--endpoint takes the address of an API, such as http://localhost:8000/v1; got "
                f"{endpoint!r}"
            )
        if api not in ("chat", "responses"):
            raise UnknownName("API", api, ("chat", "responses"))
        if not timeout_s > 0.0 or retries < 0:
            raise UsageError(
                f"--timeout-s must be above 0 and --retries at least 0, got {timeout_s:g} and "
                f"{retries}"
            )
        self.model, self.endpoint, self.api = model, endpoint.rstrip("/"), api
        self.sampling = sampling or EndpointSampling()
        self.missing = missing
        if api == "responses" and self.sampling.seeded:
            raise UsageError("--seeded has no use with --api responses, which takes no seed")
        self._retries = retries
        self._requests, self._tokens = RateLimit(rpm), RateLimit(tpm)
        self._given = (working_folder.sendable_key(key, "the argument key"), timeout_s)
        self._made: Any = None
        self._merges_system = self._renames_limit = False
        self._answered = False
        self._failed_in_a_row = 0

    @property
    def settings(self) -> Mapping[str, Any]:
        """JSON data that decides the answers."""
        return {
            **{"kind": "openai", "model": self.model, "endpoint": self.endpoint, "api": self.api},
            **self.sampling.settings(),
        }

    async def check(self) -> None:
        """Check that a server answers, accepts the key and knows the model.

        A server may serve more models than it lists: one that is not listed is asked for one token.
        The requests are made by httpx, as importing the client of OpenAI takes seconds on a busy
        machine.

        Raises:
            UsageError: If not.
        """
        if self.missing:
            raise UsageError(self.missing)
        if importlib.util.find_spec("openai") is None:
            raise UsageError(_NO_CLIENT)
        import httpx

        end, told = time.monotonic() + _CHECK_S, f"not within {_CHECK_S:g} s"
        headers = {"Authorization": f"Bearer {self._given[0]}"}
        async with httpx.AsyncClient(headers=headers, follow_redirects=True) as client:
            for attempt in range(_CHECK_TRIES):
                try:
                    async with asyncio.timeout(end - time.monotonic()):
                        listed = await client.get(f"{self.endpoint}/models", timeout=_CHECK_S)
                    break
                except (httpx.HTTPError, TimeoutError) as error:
                    if not isinstance(error, TimeoutError | httpx.TimeoutException):
                        told = f"{type(error).__name__}: {error}".removesuffix(": ")
                    if attempt == _CHECK_TRIES - 1 or end - time.monotonic() < _CHECK_S / 4:
                        raise UsageError(
                            f"no server answers at {self.endpoint}: {told}; check --endpoint, and "
                            "that the server runs"
                        ) from None
                except httpx.InvalidURL as error:
                    raise UsageError(f"--endpoint {self.endpoint!r}: {error}") from None
            self._check_key(listed.status_code, listed.text)
            known = _ids(listed)
            if known and self.model not in known and await self._is_unknown(client):
                raise UnknownName("model", self.model, known, self._these)

    async def _is_unknown(self, client: Any) -> bool:
        """Return True if the server answers in time that it does not have the model."""
        import httpx

        path, body = "chat/completions", {"max_tokens": 1, "messages": [_SHORTEST]}
        if self.api == "responses":
            path, body = "responses", {"max_output_tokens": 16, "input": [_SHORTEST]}
        try:
            answered = await client.post(
                f"{self.endpoint}/{path}",
                json={"model": self.model, **body},
                timeout=_CHECK_S / 3,
            )
        except httpx.HTTPError:
            return False  # it says nothing against the model
        return bool(answered.status_code == 404)

    @property
    def _these(self) -> str:
        return f"These are the models of {self.endpoint}."

    async def answer(self, asked: AnswerRequest) -> Generation:
        """Return one answer.

        Raises:
            ProviderFailure: If it cannot be had.
            UsageError: If every request would be refused.
            RunStopped: If the account is empty, or too many requests failed in a row.
        """
        started = time.monotonic()
        read = sum(estimate_tokens(message.content) for message in asked.messages)
        self._tokens.check(read + self.sampling.max_tokens)
        found = await self._ask(asked.messages, asked.seed)
        self._answered, self._failed_in_a_row = True, 0
        return dataclasses.replace(found, latency_s=time.monotonic() - started)

    async def ping(self) -> Generation:
        """Ask for one token, and return it.

        Raises:
            ProviderFailure: If it cannot be had.
            UsageError: If the request is refused.
        """
        small = dataclasses.replace(self.sampling, max_tokens=1)
        # The responses API takes no fewer than 16.
        small = small if self.api == "chat" else dataclasses.replace(small, max_tokens=16)
        whole, self.sampling = self.sampling, small
        try:
            return await self._ask((Message("user", "Say yes."),), 0)
        finally:
            self.sampling = whole

    async def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            await self._made.close()
            self._made = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            try:
                import openai
            except ImportError:
                raise UsageError(_NO_CLIENT) from None
            key, timeout_s = self._given
            self._made = openai.AsyncOpenAI(
                api_key=key,
                base_url=self.endpoint,
                max_retries=self._retries,
                timeout=openai.Timeout(timeout_s, connect=min(timeout_s, 2 * _CONNECT_S)),
                http_client=openai.DefaultAsyncHttpxClient(
                    event_hooks={"request": [self._let_through], "response": [self._read_bounded]}
                ),
                # A compressed body of 1 MB can hold 1 GB.
                default_headers={"Accept-Encoding": "identity"},
            )
        return self._made

    async def _let_through(self, request: Any) -> None:
        """Delay a request or a retry until the rate limits let it pass."""
        if request.method != "POST":
            return
        read = estimate_tokens(request.content.decode("utf-8", "replace"))
        await self._requests.take()
        await self._tokens.take(read + self.sampling.max_tokens)

    async def _read_bounded(self, response: Any) -> None:
        """Read the body of an answer.

        The client's own limit of time counts from one packet to the next, so that a server which
        sends a byte now and then would be waited for without end.

        Raises:
            _CutBody: If the body takes longer than a request may, or is larger than 64 MiB.
        """
        response.headers.pop("content-encoding", None)  # none was asked for
        _, timeout_s = self._given
        end = time.monotonic() + timeout_s
        reading = asyncio.ensure_future(response.aread())
        try:
            is_read = False
            while not is_read:
                await asyncio.wait([reading], timeout=_POLL_S)
                is_read = reading.done()
                if response.num_bytes_downloaded > _MOST_BYTES:
                    raise _CutBody(f"the answer is larger than {_MOST_BYTES >> 20} MiB")
                if not is_read and time.monotonic() > end:
                    raise _CutBody(f"the answer took more than {timeout_s:g} s")
            await reading
        finally:
            reading.cancel()

    async def _ask(self, messages: Sequence[Message], seed: int) -> Generation:
        import openai

        cut = 0
        while True:
            merges, renames = self._merges_system, self._renames_limit
            body = self._body(messages, seed)
            try:
                if self.api == "chat":
                    raw = await self._client.chat.completions.with_raw_response.create(**body)
                else:
                    raw = await self._client.responses.with_raw_response.create(**body)
                found = self._read(raw)
                return dataclasses.replace(found, tries=found.tries + cut)
            except _CutBody as error:
                if cut >= self._retries:
                    self._fail(str(error), cut + 1)
                cut += 1
                await asyncio.sleep(min(_MOST_DELAY_S, 0.5 * 2**cut))
            except openai.APIStatusError as error:
                said = f"{error.message} {error.body}"
                if error.status_code in (400, 422) and self._learns(said, merges, renames):
                    continue
                if error.status_code == 400 and _FILTER.search(said):
                    return Generation("", finish_reason="content_filter", model=self.model)
                await self._refuse(error, said)
            except openai.APIConnectionError as error:
                why = error.__cause__ or error
                self._fail(f"{type(error).__name__}: {why}", self._retries + 1)

    def _body(self, messages: Sequence[Message], seed: int) -> dict[str, Any]:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        if self._merges_system and len(turns) > 1 and turns[0]["role"] == "system":
            joined = f"{turns[0]['content']}\n\n{turns[1]['content']}"
            turns = [{"role": turns[1]["role"], "content": joined}, *turns[2:]]
        sampling = self.sampling
        body: dict[str, Any] = {"model": self.model}
        for name in ("temperature", "top_p"):
            if (value := getattr(sampling, name)) is not None:
                body[name] = value
        if sampling.extra_body:
            body["extra_body"] = dict(sampling.extra_body)
        if self.api == "responses":
            body |= {"input": turns, "max_output_tokens": sampling.max_tokens, "store": False}
            if sampling.reasoning_effort is not None:
                body["reasoning"] = {"effort": sampling.reasoning_effort}
            return body
        limit = "max_completion_tokens" if self._renames_limit else "max_tokens"
        body |= {"messages": turns, limit: sampling.max_tokens}
        if sampling.reasoning_effort is not None:
            body["reasoning_effort"] = sampling.reasoning_effort
        if sampling.seeded:
            body["seed"] = seed % (1 << 31)  # several servers take no larger one
        return body

    def _read(self, raw: Any) -> Generation:
        tries = int(getattr(raw, "retries_taken", 0)) + 1
        try:
            data = raw.http_response.json()
        except (ValueError, RecursionError) as error:
            raise _CutBody(f"the server's answer is not JSON, or cut short: {error}") from None
        try:
            read = chat_reply(data) if self.api == "chat" else responses_reply(data)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self._fail(
                f"the server's answer cannot be read: {type(error).__name__}: {error}", tries
            )
        named = raw.headers.get("x-request-id") or read.request_id
        return dataclasses.replace(
            read, tries=tries, request_id=named, model=read.model or self.model
        )

    def _learns(self, said: str, merges: bool, renames: bool) -> bool:
        """Return True if a refusal shows how requests to this server must be changed."""
        if not renames and self.api == "chat" and _OTHER_LIMIT.search(said):
            self._renames_limit = True
            return True
        if not merges and _NO_SYSTEM.search(said):
            self._merges_system = True
            return True
        return False

    async def _refuse(self, error: Any, said: str) -> NoReturn:
        """Raise the error that tells the user why the server refused a request."""
        self._check_key(error.status_code, str(error.message))
        status, message = error.status_code, " ".join(str(error.message).split())[:300]
        if "insufficient_quota" in said or status == 402:
            raise RunStopped(f"the account at {self.endpoint} has no credit left: {message}")
        retried = status in (408, 409, 429) or status >= 500
        if retried or (status in (400, 413, 422) and (self._answered or _TOO_LONG.search(said))):
            self._fail(f"HTTP {status}: {message}", self._retries + 1 if retried else 1)
        known = await self._models()
        if known and self.model not in known and (status == 404 or _MODEL.search(said)):
            raise UnknownName("model", self.model, known, self._these)
        raise UsageError(
            f"{self.endpoint} refuses the request for model {self.model!r} with HTTP {status}: "
            f"{message}; check --endpoint, --model and the sampling options"
        )

    def _check_key(self, status: int, said: str) -> None:
        if status in (401, 403):
            raise UsageError(
                f"{self.endpoint} refuses the key with HTTP {status}: "
                f"{' '.join(said.split())[:200]}; set the variable that --api-key-env names"
            )

    async def _models(self) -> list[str]:
        """Return the names of the endpoint's models; empty if it does not list them."""
        import openai

        client = self._client.with_options(max_retries=0, timeout=_CONNECT_S)
        try:
            return sorted([model.id async for model in client.models.list()])
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return []

    def _fail(self, message: str, tries: int) -> NoReturn:
        self._failed_in_a_row += 1
        if self._failed_in_a_row >= _FAILED_IN_A_ROW:
            raise RunStopped(
                f"{self._failed_in_a_row} requests to {self.endpoint} failed one after the other, "
                f"the last with {message}; the same command continues once it answers again"
            )
        raise ProviderFailure(message, tries)


def make(target: str, options: PolicyOptions) -> OpenAIPolicy:
    """Return the policy for ``--policy openai`` or ``--policy openai:MODEL``.

    Raises:
        UsageError: If there is no model, or an option makes no sense.
    """
    options.refuse_others("openai", "model", "endpoint", "api_key_env", *_CONNECTION, *_SAMPLED)
    model = options.model or target
    if not model:
        raise UsageError(
            "policy 'openai' needs --model, the model's name at the endpoint, as in `kernelgym "
            "eval --policy openai --endpoint http://localhost:8000/v1 --model NAME`"
        )
    endpoint = options.endpoint or os.environ.get(_ADDRESS) or _ENDPOINT
    variable = options.api_key_env or _KEY
    key = working_folder.key(variable)
    missing = ""
    if not key and (options.api_key_env is not None or endpoint.startswith(_ENDPOINT)):
        missing = (
            f"there is no key for {endpoint}: the variable {variable} is not set, and .env in the "
            "working folder does not name it; set it, or name another one by --api-key-env"
        )
    given, sampled = (
        {name: value for name in names if (value := getattr(options, name)) is not None}
        for names in (_CONNECTION, _SAMPLED)
    )
    if isinstance(options.extra_body, str):
        sampled["extra_body"] = json_object("--extra-body", options.extra_body)
    return OpenAIPolicy(
        model,
        endpoint,
        key=key or "none",
        missing=missing,
        sampling=EndpointSampling(**sampled),
        **given,
    )


def _ids(listed: Any) -> list[str]:
    """Return the names in a server's list of models; empty if its answer is no such list."""
    try:
        return sorted(str(each["id"]) for each in listed.json()["data"])
    except (ValueError, KeyError, TypeError):
        return []
