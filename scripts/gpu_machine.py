"""What a report of timings should say of the machine: device, driver, and the versions of what computes."""

import os
import platform
from importlib.metadata import distributions

import torch

NAMED = ("fairseq-fixed", "numpy", "timm", "torchvision", "transformers", "triton")


def main() -> int:
    """Print it; 1 where there is no device."""
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    found = {each.metadata["Name"].lower(): each.version for each in distributions()}
    named = {name: version for name, version in found.items() if name in NAMED or name.startswith("faiss")}
    print(", ".join(f"{name} {version}" for name, version in sorted(named.items())))
    if not any(name.startswith("faiss") for name in named):
        print("faiss isn't installed: only exact search is measured")
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        memory = f"{device.total_memory / 2**30:.0f} GiB"
        print(f"cuda:{number} {device.name}, {memory}, capability {device.major}.{device.minor}")
    if not torch.cuda.is_available():
        print("torch sees no CUDA device")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
