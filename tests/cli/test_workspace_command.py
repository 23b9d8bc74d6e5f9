"""`kernelgym workspace` and `kernelgym mcp`: refusals, an agent's work, cheats, kills."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from kernelgym.suites import get_problem
from kernelgym.suites.synthetic import solve
from support.process_tree import descendants, wait_gone
from support.serve_process import serving
from support.workspaces import KERNELGYM, RIGHT, marked, place, recorded, tool, wait_until, working

PROBLEM = "Synthetic/L1/2"


@pytest.mark.parametrize("command", ["workspace", "mcp"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "needs a PROBLEM"),
        (("Synthetic/L9/1",), "Synthetic"),
        ((PROBLEM, "--language", "cuda"), "does not run on device 'cpu'"),
        ((PROBLEM, "--language", "rust"), "unknown language 'rust'"),
        ((PROBLEM, "--budget", "0"), "at least 1; got 0"),
        ((PROBLEM, "--budget", "x"), "--budget takes a whole number"),
        ((PROBLEM, "--evaluator", "judge:8765"), "not an address of a verdict service"),
        ((PROBLEM, "--device", "cuda:9"), "device"),
    ],
)
def test_argument_that_cannot_be_used_is_a_usage_error(
    run, tmp_path, command, arguments, told
) -> None:
    record = ("--record", str(tmp_path / "t.jsonl"))
    out = ("--out", str(tmp_path / "w")) if command == "workspace" else ()
    code, _, err = run(command, *arguments, *record, *out)
    assert code == 2 and told in err and not (tmp_path / "w").exists()


def test_missing_out_or_record_and_a_record_within_reach_are_usage_errors(run, tmp_path) -> None:
    code, _, err = run("workspace", PROBLEM)
    assert code == 2 and "needs --out DIR" in err
    code, _, err = run("mcp", PROBLEM)
    assert code == 2 and "needs --record FILE" in err
    within = ("--out", str(tmp_path), "--record", str(tmp_path / "a" / "t.jsonl"))
    code, _, err = run("workspace", PROBLEM, *within)
    assert code == 2 and "outside of it" in err


def test_agent_works_cheats_change_nothing_and_the_server_ends_with_the_submission(
    tmp_path,
) -> None:
    folder = tmp_path / "w"
    with (
        serving(tmp_path / "state") as (_, judge),
        working(folder, PROBLEM, "--evaluator", judge, "--budget", "4") as process,
    ):
        url, headers = place(folder)
        (folder / "kernel.py").write_text(marked("wrong"))
        assert tool(folder, "check").returncode == 1
        # The reference is edited, the tools are replaced, and the clock stands still.
        (folder / "problem.py").write_text("class Model: ...")
        (folder / "sitecustomize.py").write_text("import time\ntime.time = lambda: 0.0\n")
        clock = {"PYTHONPATH": str(folder)}
        assert tool(folder, "time", env=clock).returncode == 1
        script = (folder / "kernelgym-tools").read_text()
        claim = {"source": marked("wrong"), "status": "correct", "score": 9.0, "budget": 99}
        faked = script.replace('{"source": _source(', json.dumps(claim) + ' | {"x": _source(')
        assert faked != script
        (folder / "kernelgym-tools").write_text(faked)
        assert tool(folder, "check").returncode == 1
        (folder / "kernelgym-tools").write_text(script)
        # The key asks for another problem, and the judge itself knows no such key.
        body = {"source": RIGHT, "problem": "Synthetic/L1/1"}
        asked = httpx.post(f"{url}/v1/workspace/check", json=body, headers=headers)
        assert asked.status_code == 403
        assert httpx.post(f"{url}/v1/jobs", json={}, headers=headers).status_code == 403
        (folder / "kernel.py").write_text(marked("correct", 2.0))
        timed = tool(folder, "time")
        assert timed.returncode == 0 and "2.00x" in timed.stdout and "left: 0" in timed.stdout
        refused = tool(folder, "check")
        assert (
            refused.returncode == 2
            and "all 4 calls of check, time and profile are used up" in refused.stderr
        )
        assert json.loads(tool(folder, "status").stdout)["calls_left"] == 0
        assert "Submitted: score" in tool(folder, "submit").stdout
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 0 and f"{PROBLEM}: correct, speedup 2.000" in out
        gone = tool(folder, "check")
        assert gone.returncode == 2 and "does not answer" in gone.stderr
    record = recorded(tmp_path / "w-trajectory.jsonl")
    statuses = [turn.verdict.status.value for turn in record.trajectory.turns]
    assert statuses == ["wrong", "wrong", "wrong", "correct", "correct"]
    assert record.trajectory.problem == get_problem(PROBLEM)


@pytest.mark.slow
def test_client_that_leaves_during_a_call_has_made_it(tmp_path) -> None:
    folder = tmp_path / "w"
    with (
        serving(tmp_path / "state", 0.5) as (_, judge),
        working(folder, PROBLEM, "--evaluator", judge) as process,
    ):
        url, headers = place(folder)
        body = json.dumps({"source": RIGHT})
        head = f"POST /v1/workspace/check HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
        head += f"Authorization: {headers['Authorization']}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as agent:
            agent.sendall(f"{head}{body}".encode())
        wait_until(lambda: json.loads(tool(folder, "status").stdout)["calls_left"] == 29)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert recorded(tmp_path / "w-trajectory.jsonl").trajectory.ended == "cut"


@pytest.mark.slow
def test_judge_that_is_gone_is_told_and_the_call_is_not_counted(tmp_path) -> None:
    folder = tmp_path / "w"
    with serving(tmp_path / "state") as (service, judge):
        given = (PROBLEM, "--evaluator", judge)
        with working(folder, *given) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
            (folder / "kernel.py").write_text(RIGHT)
            told = tool(folder, "check")
            assert told.returncode == 2 and "start that again" in told.stderr
        with working(folder, *given):
            assert (folder / "kernel.py").read_text() == RIGHT
            assert tool(folder, "check").returncode == 0
        service.kill()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("lint",), "'lint' is no tool; give one of check, time, profile, submit, status"),
        (("check", "a", "b"), "one file at most"),
        (("check", "no.py"), "cannot read no.py"),
        (("check", "latin.py"), "is not UTF-8 text (byte 5)"),
        (("check", "right.py"), "is missing or damaged"),
    ],
)
def test_tools_refuse_what_cannot_be_called(tmp_path, arguments, told) -> None:
    import kernelgym.workspace.tools_script as script

    (tmp_path / "kernelgym-tools").write_text(Path(script.__file__).read_text())
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "right.py").write_text(RIGHT)
    found = tool(tmp_path, *arguments, cwd=tmp_path)
    assert found.returncode == 2 and told in found.stderr and "Traceback" not in found.stderr


@pytest.mark.slow
def test_agent_finds_and_submits_a_kernel_by_a_real_judge(tmp_path) -> None:
    folder = tmp_path / "w"
    with working(folder, PROBLEM, "--budget", "3") as process:
        assert tool(folder, "check").returncode == 1  # the stub
        (folder / "kernel.py").write_text(solve(get_problem(PROBLEM), "cpp", 0).source)
        assert tool(folder, "check").returncode == 0
        assert tool(folder, "profile").returncode == 0
        assert tool(folder, "submit").returncode == 0
        below = descendants(process.pid)
        assert process.wait(30) == 0
        wait_gone(below)
    assert recorded(tmp_path / "w-trajectory.jsonl").trajectory.turns[-1].verdict.correct


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_judge_of_a_workspace_ends_with_it(tmp_path, kill) -> None:
    folder = tmp_path / "w"
    with working(folder, PROBLEM) as process:
        (folder / "kernel.py").write_text(solve(get_problem(PROBLEM), "cpp", 0).source)
        assert tool(folder, "check").returncode == 0
        below = descendants(process.pid)
        assert below
        process.send_signal(kill)
        process.wait(30)
        wait_gone(below)


CLIENT = """
import asyncio, sys
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    command, *arguments = sys.argv[2:]
    parameters = StdioServerParameters(command=command, args=arguments)
    async with Client(stdio_client(parameters)) as client:
        source = open(sys.argv[1]).read()
        result = await client.call_tool("check", {"source": source})
        print(result.structured_content["status"], flush=True)
        await asyncio.gather(*(client.call_tool("time", {"source": source}) for _ in range(9)))
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_judge_of_an_mcp_server_ends_with_its_client_in_the_middle_of_a_call(
    tmp_path, kill
) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(solve(get_problem(PROBLEM), "cpp", 0).source)
    record = tmp_path / "t.jsonl"
    serve = [*KERNELGYM, "mcp", PROBLEM, "--language", "cpp", "--record", str(record)]
    command = [sys.executable, "-c", CLIENT, str(kernel), *serve]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    client = subprocess.Popen(command, text=True, **pipes)
    try:
        assert client.stdout is not None
        assert client.stdout.readline().strip() == "correct"
        below = descendants(client.pid)
        assert len(below) > 2
        client.send_signal(kill)
        client.wait(30)
        wait_gone(below)
    finally:
        client.kill()
        _, told = client.communicate()  # the server writes to it, too
    assert recorded(record).trajectory.ended == "cut"
    assert "failed" not in told and "Traceback" not in told, told
