"""Write NeMo Gym's folder of a server of episodes, and say how its programs play them.

    python examples/19_nemo_gym.py http://127.0.0.1:8765

Needs `pip install 'kernelgym[nemo-gym]'` on Python 3.12, and the address of a verdict service such
as `kernelgym serve`, so that the server needs neither torch nor a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernelgym.adapters.nemo_gym import write_server

if __name__ == "__main__":
    folder = Path("runs/nemo-gym")
    config = write_server(
        folder, "Synthetic-L1-MultiTurn", problems="1-8", max_turns=3, evaluator=sys.argv[1]
    )
    rows = folder / "resources_servers/kernelgym/data/problems.jsonl"
    print(f"{config}: the server; {rows}: {len(rows.read_text().splitlines())} problems")
    print(f"cd {folder}")
    print("gym env start --resources-server kernelgym --model-type vllm_model --model NAME ...")
    print(f"gym eval run --no-serve --agent kernelgym_agent --input {rows.relative_to(folder)} ...")
