"""Runs every kernel under compute-sanitizer: bad accesses, races in shared memory, barriers that not all reach.

The kernels are picked by name, so that what PyTorch launches is neither slowed down nor reported.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = {
    "memcheck": ["--leak-check", "no"],
    "racecheck": ["--racecheck-report", "all"],
    "synccheck": [],
}


def main() -> int:
    """Returns 1 when a tool finds something, 2 when there is no compute-sanitizer."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        print("compute-sanitizer is not installed: memcheck, racecheck and synccheck have not run", file=sys.stderr)
        return 2
    # Every tensor an allocation of its own, so that an access beyond one is not in another's memory.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    failed = []
    for tool, options in TOOLS.items():
        print(f"compute-sanitizer --tool {tool}", flush=True)
        command = [sanitizer, "--tool", tool, "--error-exitcode", "9", "--kernel-name", "kns=rewardkit", *options]
        done = subprocess.run([*command, sys.executable, str(HERE / "small_run.py")], env=environment, check=False)
        if done.returncode:
            failed.append(tool)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
