"""Anonymous memory of index and retrieve with a small and a large collection, keys included.

  python benchmarks/retrieval_memory.py [--small 50000 --large 1000000] [--kind exact]

Goal: RssAnon, at its highest, differs by at most 5 %, or 4 MB, which allocators take or don't in processes as small as
keyword retrieval's: nothing is held that grows with the collection, but for a byte an image. The commands run as a user
runs them, in their own processes; /proc says every 5 ms what they hold. Exits with 1 where it is missed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairs import exit_status, in_time, machine, verdict
from retrieval_world import positive, write_captions, write_retriever, write_store, write_text

GOAL = 1.05
NOISE = 4e6  # bytes


def peak_rss_anon(arguments: list[object]) -> int:
    """The highest RssAnon, in bytes, of `visual-grounding …`.

    Raises:
        RuntimeError: the command failed.
    """
    command = [sys.executable, "-m", "visual_grounding", *map(str, arguments)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        peak = 0
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            except OSError:
                break
            held = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
            peak = max([peak, *(1024 * int(kilobytes) for kilobytes in held)])
            time.sleep(0.005)
        if process.wait() != 0:
            log.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{log.read().decode()}")
    return peak


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--small",
        type=positive,
        default=50_000,
        help="images, several times what is held at a time (default: %(default)s)",
    )
    parser.add_argument("--large", type=positive, default=1_000_000, help="images (default: %(default)s)")
    parser.add_argument("--size", type=positive, default=8, help="F, numbers an image (default: %(default)s)")
    parser.add_argument("--sentences", type=positive, default=2000, help="S (default: %(default)s)")
    parser.add_argument("--kind", default="exact", help="of the index (default: %(default)s)")
    args = parser.parse_args()
    print(machine())
    peaks: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="retrieval-memory-") as name:
        folder = Path(name)
        retriever = write_retriever(folder / "retriever", args.size, 16, "bag")
        text = write_text(folder / "text", args.sentences)
        for images in in_time((args.small, args.large)):
            own = folder / str(images)
            own.mkdir()
            store, captions = (
                write_store(own / "store", images, args.size),
                write_captions(own / "captions.tsv", images),
            )
            keys = own / "keys"
            keys.write_text("".join(f"photos/{row:012d}.jpg\n" for row in range(args.sentences)), encoding="utf-8")
            shared = ["--text", text, "--exclude-paired", keys, "--device", "cpu"]
            commands: dict[str, list[object]] = {
                "index": ["index", "--retriever", retriever, "--image-features", store, "--kind", args.kind,
                          "--device", "cpu", "--out", own / "index"],
                "retrieve dense": ["retrieve", "--method", "dense", "--retriever", retriever, "--index", own / "index",
                                   *shared, "--out", own / "dense"],
                "retrieve keyword": ["retrieve", "--method", "keyword", "--captions", captions, "--image-features",
                                     store, *shared, "--out", own / "keyword"],
            }  # fmt: skip
            for command, arguments in commands.items():
                peak = peak_rss_anon(arguments)
                peaks.setdefault(command, []).append(peak)
                print(f"{command}: {images} images, RssAnon {peak / 1e6:.1f} MB", flush=True)
    if any(len(each) < 2 for each in peaks.values()):
        return 1
    return exit_status(
        [
            verdict(f"{command}, large by small", b / a, GOAL, max(0.0, NOISE / a - (GOAL - 1)))
            for command, (a, b) in peaks.items()
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
