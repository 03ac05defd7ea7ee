"""Memory of a training step of a grounded language model, by images times regions, as a plot.

  python benchmarks/region_memory.py --out memory.png [--positions 0 1 4 8 16 36 72 144]

`grounded_albert` says 15 % of the words of a batch, 32 lines of 64 pieces, and is updated by Adam. Each number of
positions is measured in a process of its own: on a CPU its highest resident memory, on CUDA the most that torch had
allocated. Nothing is judged.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path

import torch
from pairs import in_time

WORDS, HIDDEN = 30_522, 0.15


def measure(positions: int, args: argparse.Namespace) -> float:
    """Memory of two steps, in GB."""
    from transformers import AutoConfig

    from visual_grounding.models.grounded_albert import GroundedAlbertModel
    from visual_grounding.modules.grounded_encoder import GroundedEncoder
    from visual_grounding.modules.pretrained_encoder import first_layers

    device = args.device
    if args.encoder:
        config = AutoConfig.from_pretrained(args.encoder, trust_remote_code=False).to_dict()
    else:
        config = {"model_type": "bert", "vocab_size": WORDS, "hidden_size": 384, "num_attention_heads": 12}
        config |= {"intermediate_size": 4 * 384, "num_hidden_layers": 6}
    text = {"config": {**config, "pad_token_id": 1}, "opening": [0], "closes": True, "max_positions": 511}
    cross_modal = text if args.cross_modal_layers is None else first_layers(text, args.cross_modal_layers)
    words = config["vocab_size"]
    encoder = GroundedEncoder(text, cross_modal, args.feature_size if positions else 0, 24, bool(positions))
    encoder.freeze_text()
    model = GroundedAlbertModel(encoder).to(device).train()
    tokens = torch.randint(5, words, (args.batch_size, args.pieces), device=device)
    hidden = torch.rand(args.batch_size, args.pieces, device=device) < HIDDEN
    hidden[0, 0] = True  # of a small batch, none might be
    asked = torch.ones(args.batch_size, dtype=torch.bool, device=device)
    visual = None
    if positions:
        absent = torch.zeros(args.batch_size, 1, positions, dtype=torch.bool, device=device)
        features = torch.randn(args.batch_size, 1, positions, args.feature_size, device=device).half()
        visual = {"features": features, "padding_mask": absent}
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad])
    for _ in range(2):
        optimizer.zero_grad()
        found = model(tokens, visual=visual, mask=4, hidden_words=hidden, word_side=asked)
        (found.words.loss + found.idle).backward()
        optimizer.step()
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> int:
    """Measure each in a process of its own, print and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, nargs="+", default=[0, 1, 4, 8, 16, 36, 72, 144], help="N times R")
    parser.add_argument("--encoder", help="of text: a name or folder (default: a BERT of 6 layers, 384 wide)")
    parser.add_argument("--cross-modal-layers", type=int, help="(default: the text encoder's)")
    parser.add_argument("--pieces", type=int, default=64, help="of a line")
    parser.add_argument("--batch-size", type=int, default=32, help="lines")
    parser.add_argument("--feature-size", type=int, default=1024)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where to draw")
    parser.add_argument("--alone", action="store_true", help="measure in this process: used by itself")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(measure(args.positions[0], args)))
        return 0
    found = {}
    for positions in in_time(args.positions):
        names = ("encoder", "cross_modal_layers", "pieces", "batch_size", "feature_size", "device")
        given = {name.replace("_", "-"): getattr(args, name) for name in names if getattr(args, name) is not None}
        flags = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, __file__, "--alone", "--positions", str(positions), *flags]
        found[positions] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{positions} positions: {found[positions]:.2f} GB", flush=True)
    if args.out:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(5, 3))
        axes.plot(list(found), list(found.values()), marker="o")
        axes.set(xlabel="images times regions, N · R", ylabel="memory of a step, GB", ylim=(0, None))
        figure.savefig(args.out, dpi=150, bbox_inches="tight")
    return 0


if __name__ == "__main__":
    import visual_grounding  # noqa: F401

    sys.exit(main())
