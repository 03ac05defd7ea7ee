"""`fairseq-interactive --retriever` in fresh processes: images of what is typed are those that `retrieve` finds."""

import re
import subprocess
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import run_command, write_store
from fairseq.models.transformer.transformer_legacy import base_architecture

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


@pytest.mark.parametrize("batching", [[], ["--buffer-size", 5, "--batch-size", 3, "--beam", 2]])
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
        "--retriever", found / "retriever", "--image-index", found / "index", "--images-per-sentence", 2, *batching,
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--retriever", "{other}", "--image-index", "{found}/index"], "was made by another retriever than .*other: "),
        (
            ["--retriever", "{found}/retriever", "--image-index", "{found}/index", "--image-features", "{store}"],
            "images are found in .*index, but feature store .*elsewhere was made from a different collection: keys ",
        ),
        (
            ["--retriever", "{found}/retriever", "--image-index", "{found}/index", "--image-ids", "{found}/ids"],
            r"--retriever and --image-ids exclude each other, but both are given \(.*retriever, .*ids\)",
        ),
        (["--retriever", "{found}/retriever"], "--image-features belong together, but --image-index isn't given"),
        (["--image-index", "{found}/index"], "--image-features belong together, but --retriever isn't given"),
        (
            ["--retriever", "{found}/retriever", "--image-index", "{found}/index", "--image-order", "blank"],
            "--image-order should be congruent with --retriever, but is blank",
        ),
        (
            ["--retriever", "{found}/retriever", "--image-index", "{found}/index", "--images-per-sentence", "-1"],
            "images per sentence should be at least 1, but is -1",
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, message, tiny_translation, found, tmp_path):
    from visual_grounding.errors import InputError
    from visual_grounding.tasks.grounded_translation import GroundedTranslationConfig, GroundedTranslationTask

    make_retriever(tmp_path / "other", 1)
    store = write_store(tmp_path / "elsewhere", np.ones((24, 3, 6)), [f"elsewhere{row}" for row in range(24)])
    places = {"other": tmp_path / "other", "found": found, "store": store}
    values = {"image_features": str(tiny_translation / "store")}
    for flag, value in zip(flags[::2], flags[1::2]):
        name, text = flag[2:].replace("-", "_"), value.format(**places)
        values[name] = int(text) if name == "images_per_sentence" else text
    cfg = GroundedTranslationConfig(data=str(tiny_translation / "bin"), source_lang="en", target_lang="de", **values)
    with pytest.raises(InputError, match=message):
        GroundedTranslationTask.setup_task(cfg)


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


@pytest.fixture
def task(tiny_translation, found):
    from visual_grounding.tasks.grounded_translation import GroundedTranslationConfig, GroundedTranslationTask

    cfg = GroundedTranslationConfig(
        data=str(tiny_translation / "bin"), source_lang="en", target_lang="de",
        image_features=str(tiny_translation / "store"), retriever=str(found / "retriever"),
        image_index=str(found / "index"),
    )  # fmt: skip
    return GroundedTranslationTask.setup_task(cfg)


def test_retriever_reads_what_was_typed_not_what_the_model_reads(task, found, capsys, caplog):
    """`x` and `y` are one unknown word to the translation model, and the retriever's own words."""
    own = Retriever.load(found / "retriever")
    keys = list(task.image_store.keys())
    cosines = own.encode_text(["x", "y", "xy a"]) @ torch.tensor(np.array(task.live.finder.collection.embeddings)).T
    nearest = [[keys[row] for row in best] for best in cosines.topk(8).indices.tolist()]
    assert nearest[0] != nearest[1]
    for typed in (["x", "y"], ["x@@ y a"]):
        task.build_dataset_for_inference(*task.get_interactive_tokens_and_lengths(typed, lambda line: line))
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in printed] == ["I-0", "I-1", "I-2"]
    assert [[image.rsplit(":", 1)[0] for image in images] for _, *images in printed] == nearest
    assert caplog.text.count("what is typed holds subword pieces; they are joined to find images") == 1


def test_tokens_without_lines_get_images_and_print_nothing(task, capsys):
    """fairseq's hub interface gives tokens alone, and keeps the whole batch."""
    tokens = [task.source_dictionary.encode_line(line, add_if_not_exist=False).long() for line in ("a bat", "b c bat")]
    dataset = task.build_dataset_for_inference(tokens, [len(line) for line in tokens])
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["visual"]["features"].shape == (2, 8, 3, 6)
    assert capsys.readouterr().out == ""
    ids, _ = task.live.find(["b c bat", "a bat"])
    features, _ = task.image_store.gather(ids)
    np.testing.assert_array_equal(batch["net_input"]["visual"]["features"].numpy(), features)


def test_model_that_takes_no_images_is_refused(task):
    from fairseq.models.transformer import TransformerModel

    from visual_grounding.errors import InputError

    parsed = Namespace(encoder_layers=1, decoder_layers=1, encoder_embed_dim=8, decoder_embed_dim=8,
                       encoder_attention_heads=1, decoder_attention_heads=1)  # fmt: skip
    base_architecture(parsed)
    model = TransformerModel.build_model(parsed, task)
    task.build_dataset_for_inference(*task.get_interactive_tokens_and_lengths(["a bat"], lambda line: line))
    with pytest.raises(InputError, match=r"but 1 of 1 in --path take text alone \(TransformerModel\)"):
        task.inference_step(None, [model], {"net_input": {"src_tokens": torch.tensor([[4, 2]])}})
