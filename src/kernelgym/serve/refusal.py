"""The refusal of a request to the service."""

from __future__ import annotations


class Refusal(Exception):
    """A request that the service does not take.

    Args:
        status: HTTP status.
        code: Stable name of the reason.
        message: One or two sentences for the caller.
        retry_s: Seconds after which the request may be sent again; None if that is of no use.
    """

    def __init__(self, status: int, code: str, message: str, retry_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_s = status, code, message, retry_s
