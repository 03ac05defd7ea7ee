"""Memory of a training step of a grounded language model, by images times regions, as a plot.

  python benchmarks/region_memory.py --out memory.png [--positions 0 1 4 8 16 36 72 144]

Each number of positions is measured in a process of its own: on a CPU its highest resident memory, on CUDA the most
that torch had allocated. Nothing is judged.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

import torch

BATCH, PIECES, FEATURES, WORDS = 32, 64, 2048, 10_000


def measure(positions: int, layers: int, size: int, device: str) -> float:
    """Memory of two steps, in GB."""
    from visual_grounding.modules.grounded_encoder import GroundedEncoder

    config = {"model_type": "bert", "vocab_size": WORDS, "pad_token_id": 1, "hidden_size": size}
    config |= {"num_hidden_layers": layers, "num_attention_heads": size // 64 or 1, "intermediate_size": 4 * size}
    choices = {"config": config, "opening": [0], "closes": True, "max_positions": 511}
    encoder = GroundedEncoder(choices, choices, FEATURES if positions else 0, 1).to(device).train()
    encoder.freeze_text()
    tokens = torch.randint(5, WORDS, (BATCH, PIECES), device=device)
    visual = None
    if positions:
        absent = torch.zeros(BATCH, 1, positions, dtype=torch.bool, device=device)
        features = torch.randn(BATCH, 1, positions, FEATURES, device=device).half()
        visual = {"features": features, "padding_mask": absent}
    optimizer = torch.optim.Adam([each for each in encoder.parameters() if each.requires_grad])
    for _ in range(2):
        optimizer.zero_grad()
        encoder(tokens, visual).text.sum().backward()
        optimizer.step()
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> int:
    """Measure each in a process of its own, print and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, nargs="+", default=[0, 1, 4, 8, 16, 36, 72, 144], help="N times R")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--size", type=int, default=384)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to draw")
    parser.add_argument("--alone", action="store_true", help="measure in this process: used by itself")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(measure(args.positions[0], args.layers, args.size, args.device)))
        return 0
    found = []
    for positions in args.positions:
        sizes = ["--layers", str(args.layers), "--size", str(args.size), "--device", args.device]
        command = [sys.executable, __file__, "--alone", "--positions", str(positions), *sizes]
        found.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        print(f"{positions} positions: {found[-1]:.2f} GB")
    if args.out:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(5, 3))
        axes.plot(args.positions, found, marker="o")
        axes.set(xlabel="images times regions, N · R", ylabel="memory of a step, GB", ylim=(0, None))
        figure.savefig(args.out, dpi=150, bbox_inches="tight")
    return 0


if __name__ == "__main__":
    import visual_grounding  # noqa: F401

    sys.exit(main())
