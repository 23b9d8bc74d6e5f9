"""A third party's Tinker server for our tests: skyrl's, on the CPU, with a bridge to today's SDK.

Nothing here is imported by the package. `server.py` runs in a virtual environment of its own
(`make tinker-server`); `bridge.py` translates requests, `engine.py` mends what the engine does
otherwise than the service.
"""
