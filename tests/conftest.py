"""Small worlds to test in: feature stores, image ids, binarised text, and fairseq's commands in fresh processes."""

import os
import sys
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest
from commands import run_command

from visual_grounding.features.columns import COLUMNS, Columns
from visual_grounding.features.store import FEATURE_STORE
from visual_grounding.retrieval.image_ids import IMAGE_IDS
from visual_grounding.storage.artefact import sha256_of_file
from visual_grounding.storage.shards import ShardedArtefact

REPOSITORY = Path(__file__).resolve().parents[1]

# Python can't collect semaphores, joblib's say, in the moment in which the first process is spawned: it starts its
# tracker of them then. A test that spawns would fail for those of an earlier one.
resource_tracker.ensure_running()

# Slow tests that take minutes: they come first, so that no core waits for one of them at the end.
LONGEST = ("examples/", "end_to_end/test_quickstart", "faults/test_fuzzed_readers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first."""

    def follows(item: pytest.Item) -> bool:
        path = item.path.relative_to(REPOSITORY / "tests").as_posix()
        return item.get_closest_marker("slow") is None or not path.startswith(LONGEST)

    items.sort(key=follows)


def shared_data() -> Path:
    """Where the real data is, if it is here: VISUAL_GROUNDING_DATA, or ../shared/data beside the repository."""
    return Path(os.environ.get("VISUAL_GROUNDING_DATA", REPOSITORY.parent / "shared" / "data"))


@pytest.fixture(autouse=True)
def no_best_checkpoint() -> None:
    """fairseq compares a training with the best one of its whole process, and saves no best checkpoint of a worse."""
    utils = sys.modules.get("fairseq.checkpoint_utils")
    if utils is not None:
        vars(utils.save_checkpoint).pop("best", None)


@pytest.fixture
def real_data() -> Path:
    """The folder of real data; skips where it isn't."""
    folder = shared_data()
    if not (folder / "flickr8k").is_dir():
        pytest.skip("the shared real data isn't here (set VISUAL_GROUNDING_DATA)")
    return folder


def write_store(
    folder: Path,
    features: np.ndarray,
    keys: list[str] | None = None,
    columns: dict[str, np.ndarray] | None = None,
    label_names: list[str] | None = None,
    attribute_names: list[str] | None = None,
    signature: str = "test",
) -> Path:
    """A feature store of `features` (I, R, F), and of `columns` such as {"boxes": (I, R, 4)}; names are made up."""
    columns = columns or {}
    keys = keys or [f"image{row}.jpg" for row in range(len(features))]
    images, regions, size = features.shape
    names = {}
    for column, listed, given in (
        ("labels", "label_names", label_names),
        ("attributes", "attribute_names", attribute_names),
    ):
        if column in columns:
            names[listed] = given or [f"{column[:-1]} {n}" for n in range(max(1, int(columns[column].max()) + 1))]
    described = Columns(tuple(name for name in COLUMNS if name in columns), **names)
    arrays = {"features": ((regions, size), "float16"), **described.arrays(regions)}
    artefact = ShardedArtefact(folder, FEATURE_STORE, {}, images, max(images, 1), arrays)
    (artefact.files / "keys.txt").write_text("".join(key + "\n" for key in keys), encoding="utf-8")
    for name, lines in described.files().items():
        artefact.add_lines(name, lines)
    for shard in artefact.missing():
        artefact.write(shard, {"features": features.astype(np.float16), **columns})
    digest = sha256_of_file(artefact.files / "keys.txt")
    counts = {"images": images, "regions": regions, "size": size}
    artefact.publish({**counts, "keys_sha256": digest, "signature": signature, **described.described()})
    return folder


def write_image_ids(folder: Path, ids: np.ndarray, keys_sha256: str) -> Path:
    """A table of image ids (S, N)."""
    sentences, count = ids.shape
    artefact = ShardedArtefact(
        folder,
        IMAGE_IDS,
        {},
        sentences,
        max(sentences, 1),
        {"ids": ((count,), "int32"), "scores": ((count,), "float16")},
    )
    for shard in artefact.missing():
        artefact.write(shard, {"ids": ids, "scores": np.zeros(ids.shape)})
    artefact.publish(
        {"sentences": sentences, "images_per_sentence": count, "keys_sha256": keys_sha256, "signature": "test"}
    )
    return folder


@pytest.fixture(scope="session")
def user_dir() -> str:
    """What `visual-grounding user-dir` prints."""
    return run_command("visual-grounding", "user-dir").stdout.strip()


@pytest.fixture(scope="session")
def tiny_translation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translation task whose last word only the image tells: `text/` raw, `bin/` binarised, `store/`, `ids/<split>`.

    24 images of 2 kinds, R = 3 regions, F = 6; 48 training, 12 validation and 12 test sentences with N = 2 images.
    """
    folder = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(0)
    kind = np.arange(24) % 2
    features = rng.normal(size=(24, 3, 6)) + 4 * kind[:, None, None]
    store = write_store(folder / "store", features)
    digest = sha256_of_file(store / "keys.txt")
    (folder / "text").mkdir()
    for split, size in (("train", 48), ("valid", 12), ("test", 12)):
        kinds = rng.integers(0, 2, size)
        ids = np.stack([rng.choice(np.flatnonzero(kind == k), 2, replace=False) for k in kinds]).astype(np.int32)
        write_image_ids(folder / "ids" / split, ids, digest)
        words = [" ".join(rng.choice(["a", "b", "c", "d"], rng.integers(2, 6))) for _ in kinds]
        (folder / "text" / f"{split}.en").write_text("".join(f"{w} bat\n" for w in words))
        (folder / "text" / f"{split}.de").write_text(
            "".join(f"{w} {('Schläger', 'Fledermaus')[k]}\n" for w, k in zip(words, kinds)), encoding="utf-8"
        )
    done = run_command(
        "fairseq-preprocess", "-s", "en", "-t", "de", "--destdir", folder / "bin", "--workers", 1,
        "--trainpref", folder / "text/train", "--validpref", folder / "text/valid", "--testpref", folder / "text/test",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def tiny_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences in three languages with the labelled regions of their images: see `small_pairs.py`."""
    from small_pairs import write_pairs

    return write_pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="session")
def voken_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small text with its vokens, binarised: see `small_voken_lm.py`."""
    from small_voken_lm import make_voken_world

    return make_voken_world(tmp_path_factory.mktemp("voken_world"))


@pytest.fixture(scope="session")
def pretrain_flags(user_dir: str) -> Callable[..., list[object]]:
    """Flags of `fairseq-train` for two pairs of languages as streams: `pretrain_flags(folder, save_dir, *more)`."""

    def flags(folder: Path, save_dir: Path, *more: object, images: bool = True) -> list[object]:
        places = ["--image-features", folder / "store", "--image-ids", folder / "ids"] if images else []
        return [
            folder / "bin", "--user-dir", user_dir, "--task", "visual_tlm", "--lang-pairs", "en-de,en-fr", *places,
            "--arch", "vtlm_tiny", "--encoder-layers", 2, "--encoder-embed-dim", 32, "--encoder-ffn-embed-dim", 64,
            "--encoder-attention-heads", 2, "--max-source-positions", 64, "--criterion", "visual_tlm",
            "--optimizer", "adam", "--lr", 0.005, "--batch-size", 32, "--max-epoch", 2, "--cpu", "--seed", 1,
            "--num-workers", 0, "--save-dir", save_dir, "--no-epoch-checkpoints", "--no-progress-bar",
            "--log-format", "json", *more,
        ]  # fmt: skip

    return flags


@pytest.fixture(scope="session")
def pretrained_stream(
    tiny_pairs: Path, pretrain_flags: Callable[..., list[object]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """`checkpoint_best.pt`, by the accuracy of regions, of a short training of `vtlm`; its log is beside it."""
    save_dir = tmp_path_factory.mktemp("pretrained")
    best = ["--best-checkpoint-metric", "region_accuracy", "--maximize-best-checkpoint-metric"]
    done = run_command("fairseq-train", *pretrain_flags(tiny_pairs, save_dir, *best))
    assert done.returncode == 0, done.stderr
    (save_dir / "log").write_text(done.stdout + done.stderr)
    return save_dir / "checkpoint_best.pt"


@pytest.fixture(scope="session")
def train_flags(user_dir: str) -> Callable[..., list[object]]:
    """Flags of `fairseq-train` for the tiny task: `train_flags(folder, save_dir, *more)`."""

    def flags(folder: Path, save_dir: Path, *more: object, arch: str = "visual_aware_transformer") -> list[object]:
        return [
            folder / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
            "--image-features", folder / "store", "--image-ids", folder / "ids",
            "--arch", arch, "--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 16,
            "--encoder-ffn-embed-dim", 32, "--encoder-attention-heads", 2, "--decoder-attention-heads", 2,
            "--optimizer", "adam", "--lr", 0.01, "--criterion", "label_smoothed_cross_entropy", "--max-tokens", 128,
            "--max-epoch", 2, "--cpu", "--seed", 1, "--save-dir", save_dir, "--no-progress-bar",
            "--log-format", "simple", *more,
        ]  # fmt: skip

    return flags


@pytest.fixture(scope="session")
def trained(
    tiny_translation: Path, train_flags: Callable[..., list[object]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """`checkpoint_best.pt` of a short training on the tiny task; its log is beside it."""
    save_dir = tmp_path_factory.mktemp("trained")
    done = run_command("fairseq-train", *train_flags(tiny_translation, save_dir))
    assert done.returncode == 0, done.stderr
    (save_dir / "log").write_text(done.stdout + done.stderr)
    return save_dir / "checkpoint_best.pt"


@pytest.fixture(scope="session")
def learned(
    tiny_translation: Path, train_flags: Callable[..., list[object]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint of a training on the tiny task that is long enough to learn what the images tell."""
    save_dir = tmp_path_factory.mktemp("learned")
    flags = train_flags(tiny_translation, save_dir, "--max-epoch", 30, "--dropout", 0, "--no-epoch-checkpoints")
    done = run_command("fairseq-train", *flags)
    assert done.returncode == 0, done.stderr
    return save_dir / "checkpoint_last.pt"


@pytest.fixture(scope="session")
def animals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world of `small_trained.py`, and two translators of it: `seeing.pt` and `text.pt`."""
    from small_trained import translator, write_world

    folder = write_world(tmp_path_factory.mktemp("animals"))
    translator(folder, folder / "seeing.pt", arch="visual_aware_transformer", updates=100)
    translator(folder, folder / "text.pt", arch="text_only_transformer", images=False, updates=100)
    return folder


@pytest.fixture(scope="session")
def last_words(tiny_pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pairs of `small_last_words.py`; `vtlm.pt`, which has learned to look, and `tlm.pt`, without images."""
    from small_last_words import stream, write_cut_pairs

    folder = write_cut_pairs(tiny_pairs, tmp_path_factory.mktemp("last_words"))
    stream(folder, tiny_pairs, folder / "vtlm.pt", updates=150)
    stream(folder, tiny_pairs, folder / "tlm.pt", images=False, updates=30)
    return folder
