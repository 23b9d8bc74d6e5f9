"""Evaluate a model on kernels by verifiers' program `vf-eval`.

    python examples/15_verifiers.py

Needs `pip install packages/kernelgym-verifiers uv` (verifiers starts its player by uv). A server in
this process stands for the model: it answers with a broken kernel first, and with the repaired one
to the feedback. For a model of your own, name its address by `--client.base-url`. The judge
compiles and runs the kernels on the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kernelgym import get_problem
from kernelgym.suites.synthetic import broken_variants, solve
from kernelgym.testing import reply

PROBLEM = get_problem("Synthetic/L1/2")
ANSWERS = [reply(broken_variants(PROBLEM, "triton")[0].kernel), reply(solve(PROBLEM, "triton"))]


class Model(BaseHTTPRequestHandler):
    """Answers chat completions, as the stream that verifiers asks for."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        delta = {"role": "assistant", "content": ANSWERS[min(turn, 1)]}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop"}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "choices": [choice]}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        line = json.dumps({**chunk, "model": asked["model"]})
        self.wfile.write(f"data: {line}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("vf-eval")), "kernelgym_verifiers"]
        command += [
            "-m",
            "my-model",
            "--client.base-url",
            f"http://127.0.0.1:{server.server_port}/v1",
        ]
        command += ["--client.api-key-var", "MY_KEY", "--no-push", "--no-rich", "-o", folder]
        command += ["--env.taskset.options", '{"problems": "2", "max_turns": 3}']
        done = subprocess.run(
            command, env={**os.environ, "MY_KEY": "none"}, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        (file,) = Path(folder).rglob("traces.jsonl")
        episode = json.loads(file.read_text())
    (trace,) = episode["traces"]
    print(f"return {trace['rewards']['return']['score']:.2f}")
    print(f"solved {trace['metrics']['solved']} in {trace['metrics']['turns']:.0f} turns")
