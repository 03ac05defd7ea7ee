"""Anonymous memory of training with a small and with a large feature store: it must be the same.

  python benchmarks/training_memory.py

`fairseq-train` runs in fresh processes on the same sentences, once with a store of 10,000 images and once with one of
1,000,000, keys and image ids included; RssAnon of the process and its data loader's worker is read every 20 ms and its
peak kept. Memory-mapped files aren't anonymous: the kernel may drop them any time. Goal: within 5 %.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from pairs import alternate, exit_status, machine, verdict
from synthetic import sentence_lengths, write_ids, write_store

PIECES = 1000


def anonymous_memory(pid: int) -> int:
    """RssAnon of a process and its children, in bytes; 0 where it has ended."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file)
        total = int(lines.get("RssAnon", "0 kB").split()[0]) * 1024
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="utf-8") as file:
                total += sum(anonymous_memory(int(child)) for child in file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total


def peak_of(command: list[str]) -> int:
    """The highest anonymous memory of a command and its children.

    Raises:
        RuntimeError: it failed.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        peak = 0
        while process.poll() is None:
            peak = max(peak, anonymous_memory(process.pid))
            time.sleep(0.02)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(log.read().decode()[-3000:])
    return peak


def write_text(folder: Path, sentences: int) -> None:
    """Raw text of both languages, binarised."""
    rng = np.random.default_rng(0)
    for split, count in (("train", sentences), ("valid", 8)):
        for seed, language in enumerate(("en", "de")):
            lines = (" ".join(f"w{word}" for word in rng.integers(0, PIECES, n)) for n in sentence_lengths(count, seed))
            (folder / f"{split}.{language}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    prefixes = ["--trainpref", str(folder / "train"), "--validpref", str(folder / "valid")]
    command = [script("fairseq-preprocess"), "-s", "en", "-t", "de", "--destdir", str(folder / "bin"), *prefixes]
    subprocess.run(command, check=True, capture_output=True)


def script(name: str) -> str:
    """A command of this environment."""
    return str(Path(sys.executable).with_name(name))


def main() -> int:
    """Measure, and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=10_000, help="images (default: %(default)s)")
    parser.add_argument("--large", type=int, default=1_000_000, help="images (default: %(default)s)")
    parser.add_argument("--feature-size", type=int, default=2048)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    print(machine())
    user_dir = subprocess.run([script("visual-grounding"), "user-dir"], check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder, args.sentences)
        for images in (args.small, args.large):
            ids = np.random.default_rng(0).integers(0, images, (args.sentences, 8))
            digest = write_store(folder / f"store{images}", images, args.feature_size, np.unique(ids))
            write_ids(folder / f"ids{images}/train", ids, digest)
            write_ids(folder / f"ids{images}/valid", ids[:8], digest)

        def train(images: int) -> float:
            return peak_of(
                [
                    script("fairseq-train"), str(folder / "bin"), "--user-dir", user_dir.stdout.strip(),
                    "--task", "grounded_translation", "--image-features", str(folder / f"store{images}"),
                    "--image-ids", str(folder / f"ids{images}"), "--arch", "visual_aware_transformer_tiny",
                    "--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam", "--lr", "0.001",
                    "--max-tokens", "1024", "--max-update", str(args.updates), "--seed", "1", "--no-save", "--cpu",
                    "--disable-validation", "--no-progress-bar",
                ]
            )  # fmt: skip

        found = alternate(
            lambda: train(args.large), lambda: train(args.small), args.pairs, measure=lambda action: action()
        )
    megabytes = ", ".join(f"{large / 1e6:.0f} / {small / 1e6:.0f}" for large, small in zip(found.ours, found.theirs))
    print(f"MB of anonymous memory with {args.large} / {args.small} images: {megabytes}")
    name = f"anonymous memory with {args.large} images / with {args.small}"
    return exit_status([verdict(name, max(found.median, 1 / found.median), 1.05)])


if __name__ == "__main__":
    sys.exit(main())
