"""Whole commands on the pretended device, as `--device cuda` and fairseq's commands on a GPU run them.

Each gives arrays that must be the same on the CPU: in float32 the pretended device computes the same.
"""

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import write_image_ids, write_store
from devices.forwards import made
from fairseq import options, tasks, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli.interactive import make_batches
from pictures import drawn_photo
from small_dual_encoder import SENTENCES, make_dual_encoder
from small_matcher import make_bert, make_token_matcher
from small_retriever import make_retriever, make_sentences, make_store

from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.retriever import Retriever

Chain = Callable[[Path, str], list[np.ndarray]]
CHAINS: dict[str, Chain] = {}


def chain(run: Chain) -> Chain:
    """Register a chain under its name."""
    CHAINS[run.__name__] = run
    return run


def command(*words: object) -> None:
    """`visual-grounding WORDS …` in this process."""
    status = main([str(word) for word in words])
    if status:
        raise RuntimeError(f"visual-grounding {words[0]} ended with status {status}")


def arrays_of(*folders: Path) -> list[np.ndarray]:
    """All arrays of some artefacts."""
    return [np.load(path) for folder in folders for path in sorted(folder.glob("*.npy"))]


def write_photos(folder: Path, count: int = 3) -> Path:
    """Different pictures, and a file that is none."""
    folder.mkdir()
    for number in range(count):
        drawn_photo(60 + 10 * number, 80).save(folder / f"{number}.png")
    (folder / "broken.png").write_text("no picture")
    return folder


def write_lines(path: Path, lines: list[str]) -> Path:
    """A text."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def extract(folder: Path, device: str, networks: dict[str, tuple[object, ...]]) -> list[np.ndarray]:
    """Stores of some networks; batches of 3 leave a rest."""
    photos = write_photos(folder / "photos", 4)
    for name, flags in networks.items():
        command("extract", "--images", photos, *flags, "--device", device, "--batch-size", 3, "--out", folder / name)
    return arrays_of(*(folder / name for name in networks))


@chain
def extraction(folder: Path, device: str) -> list[np.ndarray]:
    """Networks of each library, and a dry run."""
    networks = {
        "scattering": ("--backbone", "scattering", "--pool", "grid", "--grid", 2),
        "mean": ("--backbone", "resnet18", "--weights", "none", "--image-size", 64),
        "own": ("--backbone", "timm:test_vit", "--weights", "none", "--pool", "own"),
        "boxed": ("--backbone", "resnet18", "--weights", "none", "--image-size", 64, "--pool", "grid", "--grid", 2,
                  "--boxes"),
        "cells": ("--backbone", "timm:test_resnet", "--weights", "none", "--region-source", "grid", "--grid", 2),
        "regions": ("--detector", "retinanet_resnet50_fpn", "--weights", "none", "--image-size", 64,
                    "--min-score", 0, "--regions", 4, "--nms-iou", 0.9, "--nms-across-classes"),
    }  # fmt: skip
    stores = extract(folder, device, networks)
    command("extract", "--images", folder / "photos", *networks["mean"], "--device", device, "--dry-run", "--out",
            folder / "no")  # fmt: skip
    return stores


@chain
def extraction_in_half_precision(folder: Path, device: str) -> list[np.ndarray]:
    """Where autocast decides what is halved."""
    half = ("--precision", "bfloat16")
    networks = {
        "scattering": ("--backbone", "scattering", *half),
        "max": ("--backbone", "timm:test_resnet", "--weights", "none", "--pool", "max", *half),
    }
    return extract(folder, device, networks)


def index_and_retrieve(folder: Path, device: str, retriever: Path, store: Path, text: Path) -> list[np.ndarray]:
    """Images for a text, from an exact index and, where faiss is, from an exact and an approximate one by it."""
    made = []
    for kind in (["exact"], *([["flat"], ["ivf", "--lists", 2]] if find_spec("faiss") else ())):
        index, ids = folder / f"index-{kind[0]}", folder / f"ids-{kind[0]}"
        command("index", "--retriever", retriever, "--image-features", store, "--kind", *kind, "--device", device,
                "--out", index)  # fmt: skip
        command("retrieve", "--method", "dense", "--retriever", retriever, "--index", index, "--text", text, "-n", 3,
                "--device", device, "--out", ids)  # fmt: skip
        command("retrieve", "--method", "dense", "--retriever", retriever, "--index", index, "--text", text, "-n", 1,
                "--device", device, "--out", folder / f"nearest-{kind[0]}")  # fmt: skip
        made += [index, ids, folder / f"nearest-{kind[0]}"]
    return arrays_of(*made)


@chain
def retrieval(folder: Path, device: str) -> list[np.ndarray]:
    """A trained retriever, its images and its sentences, one of them empty."""
    retriever = make_retriever(folder / "retriever").folder
    store, text = make_store(folder / "store"), write_lines(folder / "text", make_sentences())
    return index_and_retrieve(folder, device, retriever, store, text)


@chain
def dual_encoder(folder: Path, device: str) -> list[np.ndarray]:
    """CLIP and SigLIP without training."""
    text, found = write_lines(folder / "text", SENTENCES), []
    photos = write_photos(folder / "photos")
    for family in ("clip", "siglip"):
        own = folder / family
        own.mkdir()
        pretrained = make_dual_encoder(own / "pretrained", family)
        command("export", "--dual-encoder", pretrained, "--out", own / "retriever")
        command("extract", "--images", photos, "--backbone", f"clip:{pretrained}", "--pool", "own", "--device", device,
                "--out", own / "store")  # fmt: skip
        found += index_and_retrieve(own, device, own / "retriever", own / "store", text)
    return found


@chain
def token_matcher(folder: Path, device: str) -> list[np.ndarray]:
    """Of tokens and of sentences: what is found for a text, one line of which is empty, its vokens, and vectors."""
    store, found = make_store(folder / "store"), []
    text = write_lines(folder / "text", ["a b c", "", "x y z q"])
    for level in ("tokens", "sentences"):
        (folder / level).mkdir()
        made = make_token_matcher(folder / level / "retriever", sentence_level=level == "sentences").folder
        found += index_and_retrieve(folder / level, device, made, store, text)
        method = "matching" if level == "tokens" else "sentence"
        command("vokenize", "--text", text, "--method", method, "--retriever", made, "--index",
                folder / level / "index-exact", "--scores", "--workers", 0, "--device", device, "--out",
                folder / level / "vokens")  # fmt: skip
        found += arrays_of(folder / level / "vokens")
    retriever: Any = Retriever.load(folder / "tokens/retriever", device)
    pieces = torch.tensor([[2, 5, 6, 3], [2, 9, 3, 0]], device=device)
    return [*found, retriever.embed_tokens(pieces, pieces == 0).detach().cpu().numpy()]


@chain
def heat_map(folder: Path, device: str) -> list[np.ndarray]:
    """Where in a picture a text is."""
    retriever = make_retriever(folder / "retriever", pooling="weldon").folder
    photos = write_photos(folder / "photos")
    keys = [f"{number}.png" for number in range(3)]
    store = write_store(folder / "store", np.random.default_rng(0).normal(size=(3, 4, 6)), keys)
    command("report", "heatmap", "--retriever", retriever, "--image-features", store, "--images", photos, "--framing",
            "whole", "--pair", "1.png", "w1 w2", "--device", device, "--out", folder / "heat")  # fmt: skip
    return [np.frombuffer((folder / "heat/heatmap.json").read_bytes(), np.uint8)]


def training(device: str, flags: list[object]) -> tuple[Any, Any, Any]:
    """Task, configuration and model as `fairseq-train` makes them, on a device."""
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(flag) for flag in flags]))
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    model = task.build_model(cfg.model).eval()
    return task, cfg, model.cuda() if device == "cuda" else model


def batches_on(device: str, flags: list[object], split: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Task, configuration, model and batch as fairseq's commands have them, on a device."""
    task, cfg, model = training(device, flags)
    task.load_dataset(split)
    iterator = task.get_batch_iterator(task.dataset(split), max_sentences=5).next_epoch_itr(shuffle=False)
    for batch in iterator:
        yield task, cfg, model, utils.move_to_cuda(batch) if device == "cuda" else batch


@chain
def translation(folder: Path, device: str) -> list[np.ndarray]:
    """Loss and beam search of each architecture over sentences with 2, 1 and no images."""
    rng = np.random.default_rng(0)
    store = write_store(folder / "store", rng.normal(size=(9, 2, 6)))
    ids = rng.integers(0, 9, (7, 2)).astype(np.int32)
    ids[1, 1:], ids[2] = -1, -1
    write_image_ids(folder / "ids/valid", ids, FeatureStore(store).keys_sha256)
    write_bitext(folder / "bin", 7)
    found = []
    for arch in ("visual_aware_transformer", "gated_fusion_transformer", "selective_attention_transformer"):
        flags = translator(folder, "--image-features", store, "--image-ids", folder / "ids", arch=arch)
        for task, cfg, model, batch in batches_on(device, flags, "valid"):
            with torch.no_grad():
                loss, _, _ = task.build_criterion(cfg.criterion)(model, batch)
                generator = task.build_generator([model], cfg.generation)
                hypotheses = task.inference_step(generator, [model], batch)
            found += [loss.cpu().numpy(), *(sentence[0]["tokens"].cpu().numpy() for sentence in hypotheses)]
    return found


@chain
def typed_sentences(folder: Path, device: str) -> list[np.ndarray]:
    """What `fairseq-interactive` does with lines as they come: their images are found, and translated with."""
    retriever = make_retriever(folder / "retriever").folder
    store = make_store(folder / "store")
    command("index", "--retriever", retriever, "--image-features", store, "--device", device, "--out",
            folder / "index")  # fmt: skip
    write_bitext(folder / "bin", 3)
    flags = translator(folder, "--image-features", store, "--retriever", retriever, "--image-index", folder / "index")
    task, cfg, model = training(device, flags)
    generator, found = task.build_generator([model], cfg.generation), []
    for batch in make_batches(["a b", "", "c d w1"], cfg, task, task.max_positions(), lambda line: line):
        inputs = {"src_tokens": batch.src_tokens, "src_lengths": batch.src_lengths}
        sample = utils.move_to_cuda({"net_input": inputs}) if device == "cuda" else {"net_input": inputs}
        hypotheses = task.inference_step(generator, [model], sample)
        found += [sentence[0]["tokens"].cpu().numpy() for sentence in hypotheses]
    return found


def translator(folder: Path, *more: object, arch: str = "visual_aware_transformer") -> list[object]:
    """Flags of a small translator of the text in `bin`."""
    return [folder / "bin", "--task", "grounded_translation", "-s", "en", "-t", "de", "--arch", arch,
            "--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16,
            "--encoder-attention-heads", 2, "--decoder-attention-heads", 2, "--visual-standardise",
            "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1, *more]  # fmt: skip


def write_bitext(folder: Path, count: int) -> None:
    """A split `valid`, binarised."""
    from fairseq.data import indexed_dataset

    folder.mkdir()
    rng = np.random.default_rng(1)
    for language in ("en", "de"):
        words = Dictionary()
        for word in "abcdefgh":
            words.add_symbol(word)
        words.save(str(folder / f"dict.{language}.txt"))
        prefix = str(folder / f"valid.en-de.{language}")
        builder = indexed_dataset.make_builder(prefix + ".bin", "mmap", vocab_size=len(words))
        for _ in range(count):
            line = [*rng.integers(4, len(words), rng.integers(2, 6)), words.eos()]
            builder.add_item(torch.tensor(line, dtype=torch.int32))
        builder.finalize(prefix + ".idx")


@chain
def retriever_training(folder: Path, device: str) -> list[np.ndarray]:
    """Validation of a retriever that is being trained, on features and on pictures; one caption's picture is broken."""
    photos = write_photos(folder / "photos", 4)
    keys = sorted(path.name for path in photos.iterdir())
    features = np.random.default_rng(0).normal(size=(len(keys), 4, 6))
    features[keys.index("broken.png")] = 0
    store = write_store(folder / "store", features, keys)
    captions = write_lines(folder / "captions.tsv", [f"{key}\ta picture {key[0]}" for key in keys * 2])
    valid = shutil.copy(captions, folder / "valid.tsv")
    command("prepare", "--train", captions, "--valid", valid, "--out", folder / "data")
    shared = [folder / "data", "--task", "image_text_matching", "--arch", "visual_semantic_embedding", "--joint-size",
              8, "--text-embed-size", 5, "--sru-layers", 1, "--criterion", "hardest_negative_triplet",
              "--joint-batch-norm"]  # fmt: skip
    network = ["--image-folder", photos, "--image-backbone", "resnet18", "--image-backbone-weights", "none"]
    found = []
    for flags in (["--image-features", store], [*network, "--image-size", 64]):
        for task, cfg, model, batch in batches_on(device, [*shared, *flags], "valid"):
            criterion = task.build_criterion(cfg.criterion).eval()
            with torch.no_grad(), metrics.aggregate(new_root=True) as scores:
                loss, _, logged = task.valid_step(batch, model, criterion)
                task.reduce_metrics([logged], criterion)
            found.append(np.array([float(loss), scores.get_smoothed_values()["recall_sum"]]))
    return found


@chain
def matcher_training(folder: Path, device: str) -> list[np.ndarray]:
    """Validation of a matcher of tokens and one of sentences; one caption's image is absent."""
    features = np.random.default_rng(0).normal(size=(5, 2, 6))
    features[3] = 0
    store, bert = write_store(folder / "store", features), make_bert(folder / "bert")
    captions = write_lines(folder / "captions.tsv", [f"image{n % 5}.jpg\ta b {'cdefg'[n % 5]}" for n in range(10)])
    valid = shutil.copy(captions, folder / "valid.tsv")
    command("prepare", "--train", captions, "--valid", valid, "--out", folder / "data")
    shared = [folder / "data", "--task", "image_text_matching", "--image-features", store, "--text-encoder", bert,
              "--arch", "token_image_matching", "--matcher-layers", 2, "--criterion", "token_image_hinge"]  # fmt: skip
    found = []
    for flags in ([], ["--sentence-level", "--token-image-negatives", "all"]):
        for task, cfg, model, batch in batches_on(device, [*shared, *flags], "valid"):
            made(model, torch.float32)
            criterion = task.build_criterion(cfg.criterion).eval()
            with torch.no_grad(), metrics.aggregate(new_root=True) as scores:
                loss, _, logged = task.valid_step(batch, model, criterion)
                task.reduce_metrics([logged], criterion)
            names = ["recall_sum", *([] if flags else ["token_to_image_r1"])]
            found.append(np.array([float(loss), *(scores.get_smoothed_values()[name] for name in names)]))
    return found
