"""Workspaces: a coding agent works on one problem with four tools, and cannot reach the grader.

`session` holds the episode: every call of a tool is a turn of an ordinary trajectory. `folder`
writes what the agent works in, `server` answers its tools over HTTP on loopback, `mcp_server` over
the Model Context Protocol. The room stands above `envs` and `serve`, whose keys, refusals and
listening socket it uses. Its siblings, the adapters, are not imported.
"""
