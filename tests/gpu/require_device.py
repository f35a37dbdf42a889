"""Says which GPU the checks will run on, or in one line why there is none."""

from __future__ import annotations

import sys

from rewardkit import _kernels
from rewardkit.errors import BackendError


def main() -> int:
    """Returns 2 where nothing can run."""
    try:
        info = _kernels.kernel("cuda_info", "cuda")()
        if not info["devices"]:
            print(f"no CUDA device: {info['reason']}; the kernels are built, nothing has run on a GPU", file=sys.stderr)
            return 2
        import torch

        if not torch.cuda.is_available():
            print("this PyTorch sees no CUDA device; nothing has run on a GPU", file=sys.stderr)
            return 2
    except (BackendError, ImportError) as error:
        print(f"nothing has run on a GPU: {error}", file=sys.stderr)
        return 2
    for device in info["devices"]:
        print(f"{device['name']}, compute capability {device['compute_capability']}, {device['memory_gib']:.0f} GiB")
    print(f"kernels for {info['architectures']}; torch {torch.__version__} with CUDA {torch.version.cuda}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
