"""The pairs of `small_pairs.py` with words of several pieces and full stops, and small streams trained on them."""

from pathlib import Path

from small_pairs import binarise
from small_trained import train

CUT = {"Fledermaus": "Fleder@@ maus", "souris": "sou@@ ri@@ s"}


def write_cut_pairs(pairs: Path, folder: Path) -> Path:
    """`bin/` of these pairs: some words are cut, two thirds of the sentences end in punctuation; images stay."""
    (folder / "text").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        for language in ("en", "de", "fr"):
            lines = (pairs / f"text/{split}.{language}").read_text(encoding="utf-8").splitlines()
            for word, pieces in CUT.items():
                lines = [line.replace(word, pieces) for line in lines]
            ended = [f"{line}{(' .', '', ' ! &quot;')[row % 3]}" for row, line in enumerate(lines)]
            (folder / f"text/{split}.{language}").write_text("".join(f"{each}\n" for each in ended), encoding="utf-8")
    every = [(folder / f"text/train.{language}").read_text(encoding="utf-8") for language in ("en", "de", "fr")]
    for language in ("xx", "yy"):
        (folder / f"text/all.{language}").write_text("".join(every), encoding="utf-8")
    binarise("xx", "yy", folder / "dict", "--trainpref", folder / "text/all", "--joined-dictionary", "--dict-only")
    for target in ("de", "fr"):
        parts = [part for split in ("train", "valid", "test") for part in (f"--{split}pref", folder / "text" / split)]
        dictionary = folder / "dict/dict.xx.txt"
        binarise("en", target, folder / "bin", "--srcdict", dictionary, "--joined-dictionary", *parts)
    return folder


def stream(folder: Path, pairs: Path, path: Path, *more: object, images: bool = True, updates: int = 0) -> Path:
    """A checkpoint of a small `vtlm`."""
    seeing = ["--image-features", pairs / "store", "--image-ids", pairs / "ids"] if images else []
    sizes = ["--encoder-layers", 2, "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64]
    words = [folder / "bin", "--task", "visual_tlm", "--lang-pairs", "en-de,en-fr", "--arch", "vtlm_tiny", *sizes]
    calm = ["--dropout", 0, "--attention-dropout", 0, "--mask-prob", 0.3, "--criterion", "visual_tlm"]
    if images:
        calm += ["--visual-dropout", 0]
    return train(path, *words, *seeing, *calm, "--encoder-attention-heads", 2, *more, updates=updates, lr=0.01)
