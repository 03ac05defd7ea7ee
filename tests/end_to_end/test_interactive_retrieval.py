"""`fairseq-interactive` in fresh processes: images of what is typed are those that `retrieve` finds."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command

from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.joint_embedding import save_joint_embedding
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.text.words import Vocabulary, WordTokenizer


def make_retriever(folder: Path, seed: int) -> Retriever:
    """Random weights for the tiny translation task's words and images; `x` and `y` are words that it alone knows."""
    torch.manual_seed(seed)
    words = ["a", "b", "c", "d", "bat", "x", "y"]
    config = JointEmbeddingConfig("bag", "weldon", 6, joint_size=8, vocabulary_size=4 + len(words), text_embed_size=5)
    save_joint_embedding(folder, JointEmbedding(config), WordTokenizer(Vocabulary(words)), f"seed{seed}")
    return Retriever.load(folder)


@pytest.fixture(scope="module")
def found(tiny_translation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A retriever, its index, and the ids that `retrieve` finds for the test split."""
    folder = tmp_path_factory.mktemp("found")
    build_index(make_retriever(folder / "retriever", 0), FeatureStore(tiny_translation / "store"), folder / "index")
    done = run_command(
        "visual-grounding", "retrieve", "--method", "dense", "--retriever", folder / "retriever", "-n", 2,
        "--index", folder / "index", "--text", tiny_translation / "text/test.en", "--out", folder / "ids/test",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def interact(
    tiny_translation: Path, trained: Path, user_dir: str, typed: list[str], tmp_path: Path, *more: object
) -> subprocess.CompletedProcess[str]:
    """`fairseq-interactive` on typed lines."""
    (tmp_path / "typed").write_text("".join(line + "\n" for line in typed), encoding="utf-8")
    return run_command(
        "fairseq-interactive", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", trained, "--cpu", "-s", "en", "-t", "de", "--image-features", tiny_translation / "store",
        "--input", tmp_path / "typed", *more,
    )  # fmt: skip


def fields(output: str, kind: str) -> dict[int, list[str]]:
    """The fields of every line of a kind (`H-3<TAB>…`), by sentence."""
    lines = [line.split("\t") for line in output.splitlines() if re.match(rf"{kind}-\d+(\t|$)", line)]
    assert len({name for name, *_ in lines}) == len(lines)
    return {int(name[2:]): values for name, *values in lines}


WIDER = ["--buffer-size", 5, "--batch-size", 3, "--beam", 2]


@pytest.mark.parametrize("batching", [[], pytest.param(WIDER, marks=pytest.mark.slow)])
def test_typed_sentences_get_the_images_and_translations_of_the_other_commands(
    batching, tiny_translation, trained, found, user_dir, tmp_path
):
    done = run_command(
        "fairseq-generate", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", trained, "--image-features", tiny_translation / "store", "--image-ids", found / "ids", "--cpu",
        *batching[4:],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = fields(done.stdout, "H")
    typed = (tiny_translation / "text/test.en").read_text(encoding="utf-8").splitlines()
    place = {sentence: sentence + (sentence >= 4) for sentence in range(12)}  # an empty line comes fifth
    done = interact(
        tiny_translation, trained, user_dir, [*typed[:4], "", *typed[4:]], tmp_path,
        "--retriever", found / "retriever", "--image-index", found / "index", *batching,
        *(["--images-per-sentence", 2] if batching else []),  # the checkpoint's otherwise
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    images, hypotheses = fields(done.stdout, "I"), fields(done.stdout, "H")
    table = ImageIds(found / "ids/test")
    keys = list(FeatureStore(tiny_translation / "store").keys())
    assert sorted(images) == sorted(hypotheses) == list(range(13))
    assert images[4] == []
    for sentence in range(12):
        names, scores = zip(*(image.rsplit(":", 1) for image in images[place[sentence]]))
        assert list(names) == [keys[row] for row in table.ids[sentence]]
        np.testing.assert_allclose(np.array(scores, float), table.scores[sentence], atol=1e-3)
        score, text = hypotheses[place[sentence]]
        assert text == expected[sentence][1] and float(score) == pytest.approx(float(expected[sentence][0]), abs=1e-3)
    if not batching:  # each line of images stands right before its sentence
        kinds = re.findall(r"^([ISH])-(\d+)", done.stdout, re.MULTILINE)
        assert kinds == [(kind, str(number)) for number in range(13) for kind in "ISH"]
    assert "text alone" not in done.stdout + done.stderr


def test_another_way_of_finding_images_is_named_as_retrieve_does(tiny_translation, trained, user_dir, tmp_path):
    keys = list(FeatureStore(tiny_translation / "store").keys())
    captions = "".join(f"{key}\t{'abcd'[row % 4]} bat {['red', 'blue'][row % 2]}\n" for row, key in enumerate(keys))
    (tmp_path / "captions.tsv").write_text(captions)
    (tmp_path / "text").write_text("c red bat\n\nblue\n")
    flags = ["--captions", tmp_path / "captions.tsv", "--image-features", tiny_translation / "store", "-n", 3]
    done = run_command(
        "visual-grounding",
        "retrieve",
        "--method",
        "keyword",
        *flags,
        "--text",
        tmp_path / "text",
        "--out",
        tmp_path / "i",
    )
    assert done.returncode == 0, done.stderr
    table = ImageIds(tmp_path / "i")
    done = interact(
        tiny_translation, trained, user_dir, ["c red bat", "", "blue"], tmp_path,
        "--image-finder", shlex.join(["keyword", *map(str, flags)]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = fields(done.stdout, "I")
    for line in range(3):
        pairs = zip(table.ids[line], table.scores[line])
        assert found[line] == [f"{keys[row]}:{score:.4f}" for row, score in pairs if row >= 0]
    assert [len(found[line]) for line in range(3)] == [3, 0, 3] and sorted(fields(done.stdout, "H")) == [0, 1, 2]


def test_interactive_prints_a_mistake_alone_and_generate_refuses_a_retriever(
    tiny_translation, trained, found, user_dir, tmp_path
):
    make_retriever(tmp_path / "other", 1)
    flags = ["--retriever", tmp_path / "other", "--image-index", found / "index"]
    done = interact(tiny_translation, trained, user_dir, ["a bat"], tmp_path, *flags)
    assert done.returncode == 2 and "was made by another retriever than" in done.stderr
    assert "Traceback" not in done.stderr
    done = run_command(
        "fairseq-generate", tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation",
        "--path", trained, "--image-features", tiny_translation / "store", "--cpu",
        "--retriever", found / "retriever", "--image-index", found / "index",
    )  # fmt: skip
    assert done.returncode == 2 and "but test is binarised text. Make a table of its images" in done.stderr
