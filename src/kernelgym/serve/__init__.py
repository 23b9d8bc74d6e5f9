"""The verdict service: an HTTP server in front of an evaluator, with a durable queue.

`server` starts it, `app` answers requests, `runner` feeds the evaluator, `store` keeps jobs and
verdicts in SQLite, `keys` knows the tenants. It stands above the evaluators and the suites, and
judges nothing itself. Needs the extra ``serve``.
"""
