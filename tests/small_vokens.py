"""Artefacts of vokens, made by hand: any vokens for any lines."""

import hashlib
from pathlib import Path

import numpy as np

from visual_grounding.storage.artefact import FORMAT_VERSION, META, sha256_of_file, write_json
from visual_grounding.storage.lines import sha256_of_lines
from visual_grounding.storage.outside import read_json
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


def write_vokens(
    folder: Path,
    lines: list[str],
    tokenizer: Path,
    size: int = 5,
    vokens: list[list[int]] | None = None,
    scores: list[float] | None = None,
    **meta: object,
) -> Path:
    """Vokens of some lines, cut by a tokenizer; without `vokens` the i-th piece of all has voken i % size."""
    bridge = TokenizerBridge(str(tokenizer))
    numbers = bridge.numbers_of(lines)
    offsets = np.cumsum([0, *map(len, numbers)]).astype(np.int64)
    flat = np.arange(offsets[-1]) % size if vokens is None else np.concatenate([np.zeros(0), *map(np.array, vokens)])
    folder.mkdir(parents=True)
    np.save(folder / "vokens.npy", flat.astype(np.int32))
    np.save(folder / "offsets.npy", offsets)
    if scores is not None:
        np.save(folder / "scores.npy", np.array(scores, dtype=np.float16))
    pieces = [bridge.line_of(line) for line in numbers]
    texts = {"tokens.txt": pieces, "dict.txt": bridge.dictionary_lines(), "keys.txt": [f"{n}.jpg" for n in range(size)]}
    for name, content in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8", newline="\n")
    bridge.tokenizer.save_pretrained(folder / "tokenizer")
    said = {
        "format": "vokens",
        "version": FORMAT_VERSION,
        "plan": {},
        "signature": "vokenize|by:hand",
        "lines": len(lines),
        "tokens": int(offsets[-1]),
        "vokens": size,
        "label": "token",
        "text_sha256": sha256_of_lines(lines),
        "tokens_sha256": sha256_of_lines(pieces),
        "tokenizer_sha256": bridge.sha256,
        "keys_sha256": hashlib.sha256((folder / "keys.txt").read_bytes()).hexdigest(),
        "arrays_sha256": {path.stem: sha256_of_file(path) for path in sorted(folder.glob("*.npy"))},
        "counts": {"empty": sum(not line.strip() for line in lines)},
    }
    write_json(folder / META, {**said, **meta})
    return folder


def change_vokens(folder: Path, vokens: np.ndarray) -> None:
    """Other vokens in the place of those, as if they had been written so."""
    np.save(folder / "vokens.npy", vokens)
    said = read_json(folder / META)
    said["arrays_sha256"]["vokens"] = sha256_of_file(folder / "vokens.npy")
    write_json(folder / META, said)
