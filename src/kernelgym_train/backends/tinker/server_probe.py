"""Plain requests to a Tinker server, before the SDK's first.

Contract: each says within ten seconds what is wrong with address, key, model or checkpoint, in one
`UsageError`. The SDK itself tries a refused port for over a minute. A redirect is not followed: the
key would go with it. Nothing is changed on the server.

It does not cover what a key is allowed to do, and whether the account is paid for.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kernelgym import UsageError

HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Address of the hosted Tinker service, as in the SDK."""
_ASKED = "/api/v1/get_server_capabilities"
_WEIGHTS = "/api/v1/weights_info"
_PATIENCE_S = 8.0
"""Seconds that a request may take, the look-up of the host's name included."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server says it has."""

    name: str
    context: int | None
    """Length of the model's context, in tokens; None if the server does not tell it."""


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """A server's description of weights that it keeps."""

    path: str
    """Address of the weights, ``tinker://...``."""
    base_model: str
    """Name of the base model of the adapter; empty if the server does not tell it."""
    rank: int | None
    """Rank of the adapter; None if the server does not tell."""


def server_address(base_url: str) -> str:
    """Return the address of Tinker's service.

    Args:
        base_url: Configured address; if empty, TINKER_BASE_URL or the hosted service.

    Raises:
        UsageError: If the address is not one of a server.
    """
    found = (base_url or os.environ.get("TINKER_BASE_URL") or HOSTED).rstrip("/")
    parts = urlsplit(found)
    try:
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        known = False
    if not known:
        raise UsageError(
            f"tinker.base_url={found!r} is not an address of a server; give one such as "
            "http://127.0.0.1:8004"
        )
    return found


def reach(base_url: str, key: str) -> tuple[ServedModel, ...]:
    """Return the models that a Tinker server lists.

    Args:
        base_url: Address of the server; see `server_address`.
        key: Key that is sent with the request; empty to send none.

    Raises:
        UsageError: If the server is not there, refuses the key, or is not a Tinker server.
    """
    answer = _asked(base_url, _ASKED, key)
    if isinstance(answer, int):
        raise _refused(base_url, answer)
    return _models(base_url, answer)


def find_weights(base_url: str, key: str, path: str) -> KeptWeights:
    """Return a server's description of weights that it keeps.

    Args:
        base_url: Address of the server.
        key: Key that is sent with the request; empty to send none.
        path: Address of the weights, ``tinker://...``.

    Raises:
        UsageError: If the server is not there, refuses the key, or has no such weights.
    """
    answer = _asked(base_url, _WEIGHTS, key, {"tinker_path": path})
    if answer in (400, 404, 422):
        raise UsageError(
            f"the Tinker server at {base_url} has no {path} (HTTP {answer}): it was kept on "
            "another server, or deleted since; give a path that it has, or set tinker.base_url to "
            "its server"
        )
    if isinstance(answer, int):
        raise _refused(base_url, answer)
    try:
        told = json.loads(answer)
        return KeptWeights(path, str(told.get("base_model") or ""), told.get("lora_rank"))
    except (ValueError, AttributeError):
        raise _no_tinker(base_url, f"it does not tell what {path} is") from None


def find_model(models: Sequence[ServedModel], wanted: str, base_url: str) -> ServedModel:
    """Return a server's model that a name or folder denotes.

    Args:
        models: Models that the server lists; any name is taken if it tells none.
        wanted: ``model.id``.
        base_url: The server's address.

    Raises:
        UsageError: If the server has no such model.
    """
    if not models:
        return ServedModel(wanted, None)
    names = [wanted]
    if Path(wanted).is_dir():
        names.append(str(Path(wanted).resolve()))
    for model in models:
        if model.name in names:
            return model
    known = ", ".join(model.name for model in models)
    raise UsageError(
        f"model.id={wanted!r} is not served at {base_url}; the models there: {known}; set model.id "
        "to one of them"
    )


def _asked(
    base_url: str, path: str, key: str, content: Mapping[str, Any] | None = None
) -> bytes | int:
    """Return the body of a server's answer, or the HTTP status of its refusal.

    Args:
        base_url: Address of the server.
        path: Path of the request.
        key: Key that is sent with the request; empty to send none.
        content: JSON data to send by POST; None for a GET request.

    Raises:
        UsageError: If it is not there, or does not speak HTTP.
    """
    import httpx

    headers = {"User-Agent": "kernelgym"} | ({"X-API-Key": key} if key else {})
    method = "GET" if content is None else "POST"
    found: list[httpx.Response | Exception] = []

    def ask() -> None:
        try:
            url = base_url + path
            answer = httpx.request(method, url, headers=headers, json=content, timeout=_PATIENCE_S)
            found.append(answer)
        except Exception as error:
            found.append(error)

    # The look-up of a host's name has no limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    if not found:
        raise _not_there(base_url, f"no answer within {_PATIENCE_S:g} s")
    answer = found[0]
    if isinstance(answer, httpx.RemoteProtocolError):
        raise _no_tinker(base_url, "its answer is not HTTP")
    if isinstance(answer, Exception):
        raise _not_there(base_url, str(answer) or type(answer).__name__)
    return answer.content if answer.is_success else answer.status_code


def _models(base_url: str, answer: bytes) -> tuple[ServedModel, ...]:
    try:
        told = json.loads(answer)["supported_models"]
        rows = [(row["model_name"], row.get("max_context_length")) for row in told]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _no_tinker(base_url, "it does not tell its models") from None
    return tuple(ServedModel(str(name), context) for name, context in rows if name)


def _refused(base_url: str, code: int) -> UsageError:
    if code in (401, 403):
        return UsageError(
            f"the Tinker server at {base_url} refuses the key (HTTP {code}); set TINKER_API_KEY to "
            "one that is valid there"
        )
    if code == 402 or code >= 429:
        return UsageError(
            f"the Tinker server at {base_url} answers with HTTP {code}; look at its status or your "
            "account, and try again"
        )
    return _no_tinker(base_url, f"it answers with HTTP {code}")


def _not_there(base_url: str, reason: str) -> UsageError:
    return UsageError(
        f"no Tinker server was reached at {base_url}: {reason}; look at the network, start a "
        "server there, or set tinker.base_url to where one is"
    )


def _no_tinker(base_url: str, reason: str) -> UsageError:
    return UsageError(
        f"what answers at {base_url} is not a Tinker server: {reason}; set tinker.base_url to one"
    )
