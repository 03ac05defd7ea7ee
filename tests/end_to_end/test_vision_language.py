"""VLP from raw text to translations: both pre-trainings, both stages, generation, typed sentences, two processes."""

import re
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from commands import run_command, train_in_two_processes
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.generate import main as fairseq_generate
from small_tokenizers import minilm
from vision_language import NOUNS, TINY, make_translation_world, make_world, train_in_process

from visual_grounding.storage.checkpoints import load_checkpoint

SIZES = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]
DECODER = ["--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 32, "--decoder-layers", 1,
           "--decoder-attention-heads", 2, "--dropout", 0]  # fmt: skip
TRANSLATION = ("grounded_translation", "vlp_translation", "label_smoothed_cross_entropy")
PRETRAINING = ("vision_language_pretraining", "vlp_bert", "masked_lm_with_paired_image")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_translation_world(make_world(tmp_path_factory.mktemp("world")))


def image_flags(world: Path) -> list[object]:
    return ["--image-features", world / "store", "--image-ids", world / "ids", "--image-tags", "words"]


def generate(world: Path, capsys: pytest.CaptureFixture[str], path: object, *more: object) -> dict[int, str]:
    """Translations of the validation split by `fairseq-generate` in this process."""
    words = [world / "bin", "--task", "grounded_translation", "-s", "en", "-t", "de", "--gen-subset", "valid", "--cpu",
             "--path", path, "--beam", 3, "--max-len-a", 0, "--max-len-b", 8, "--num-workers", 0, *more]  # fmt: skip
    capsys.readouterr()
    parser = options.get_generation_parser()
    fairseq_generate(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(word) for word in words])))
    found = re.findall(r"^H-(\d+)\t\S+\t(.*)$", capsys.readouterr().out, re.MULTILINE)
    return {int(number): line for number, line in found}


def test_all_steps_of_the_algorithm_one_after_another(world, tmp_path, capsys, caplog, monkeypatch):
    """Pre-trained, continued on the source side of the pairs, frozen, whole; then one model and two translate."""
    train_in_process(world, tmp_path / "one", *PRETRAINING, *SIZES, epochs=1)
    train_in_process(
        world, tmp_path / "two", *PRETRAINING, "--source-lang", "en", "--mask-prob", 0.5, "--finetune-from-model",
        tmp_path / "one/checkpoint_last.pt", epochs=1, validate=True,
    )  # fmt: skip
    state = load_checkpoint(tmp_path / "two/checkpoint_best.pt")
    scores = state["extra_state"]["metrics"]["valid"]
    assert {name for _, name, _, _ in scores} >= {
        "loss", "mlm_loss", "word_accuracy", "tag_accuracy", "paired_image_loss", "paired_image_accuracy"
    }  # fmt: skip
    train_in_process(
        world, tmp_path / "three", *TRANSLATION, *DECODER, "--visual-freeze-encoder", "--visual-pretrained",
        tmp_path / "two/checkpoint_best.pt", "--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 5}',
        epochs=2, validate=True,
    )  # fmt: skip
    train_in_process(
        world, tmp_path / "four", *TRANSLATION, *DECODER, "--finetune-from-model",
        tmp_path / "three/checkpoint_best.pt", epochs=25,
    )  # fmt: skip
    last = tmp_path / "four/checkpoint_last.pt"
    own = generate(world, capsys, last, *image_flags(world))
    assert sorted(own) == list(range(8)) and "was trained with" not in caplog.text
    assert generate(world, capsys, f"{last}:{last}", *image_flags(world)) == own
    blank = generate(world, capsys, last, *image_flags(world), "--image-order", "blank")
    assert generate(world, capsys, last) == blank != own  # without images, and with absent ones
    assert "was trained with" not in caplog.text
    generate(world, capsys, last, *image_flags(world)[:-2])
    assert "was trained with words from score 0.3 beside the text, but here it gets none" in caplog.text
    (tmp_path / "checkpoints").mkdir()  # fairseq's default --save-dir: of another training, which nobody asks for
    torch.save({"model": {}, "args": Namespace(decoder_attention_heads=4)}, tmp_path / "checkpoints/checkpoint_last.pt")
    monkeypatch.chdir(tmp_path)
    assert generate(world, capsys, last, *image_flags(world)) == own


def test_text_alone_in_two_stages(world, tmp_path, capsys):
    train_in_process(world, tmp_path / "one", *TRANSLATION, *DECODER, *SIZES, images=False, epochs=1)
    one = tmp_path / "one/checkpoint_last.pt"
    frozen = [*TRANSLATION, *DECODER, "--visual-freeze-encoder", "--finetune-from-model", one]
    train_in_process(world, tmp_path / "two", *frozen, images=False, epochs=1)
    before, after = (load_checkpoint(path)["model"] for path in (one, tmp_path / "two/checkpoint_last.pt"))
    moved = {name.split(".")[1] for name in before if not torch.equal(before[name], after[name])}
    assert "stream" not in moved and {"projection", "layers"} <= moved
    assert len(generate(world, capsys, tmp_path / "two/checkpoint_last.pt")) == 8


@pytest.mark.slow
def test_two_processes_pretrain_and_translate(world, user_dir, tmp_path):
    begun = tmp_path / "vlp_bert/checkpoint_last.pt"
    for names, more in ((PRETRAINING, SIZES), (TRANSLATION, ["-s", "en", "-t", "de", *DECODER, "--visual-pretrained",
                        begun, "--visual-freeze-encoder"])):  # fmt: skip
        task, arch, criterion = names
        flags = [
            world / "bin", "--user-dir", user_dir, "--task", task, "--arch", arch, "--criterion", criterion, "--cpu",
            "--optimizer", "adam", "--lr", 0.01, "--batch-size", 4, "--max-epoch", 1, "--save-dir", tmp_path / arch,
            "--no-progress-bar", "--log-format", "simple", *image_flags(world), *more,
        ]  # fmt: skip
        logs = train_in_two_processes(*flags)
        assert "inconsistent" not in logs[0] + logs[1]
        assert task != PRETRAINING[0] or re.search(r"valid.*paired_image_accuracy", logs[0])
    load_checkpoint(tmp_path / "vlp_translation/checkpoint_last.pt")


@pytest.mark.slow
def test_real_bert_from_raw_text_to_typed_sentences(tmp_path, user_dir):
    """all-MiniLM-L6-v2: pieces, data, pre-training, translation, and fairseq-interactive with a finder."""
    folder = make_world(tmp_path)
    lines = {"train": [f"A {NOUNS[image % 4]} by the sea." for image in range(24)], "valid": ["A bird."] * 8}
    for split, sentences in lines.items():
        for language in ("en", "de"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in sentences))
    texts = [tmp_path / f"{split}.{language}" for split in lines for language in ("en", "de")]
    pieces = tmp_path / "pieces"
    done = run_command(
        "visual-grounding", "prepare", "pieces", "--tokenizer", minilm(), "--text", *texts, "--out", pieces
    )
    assert done.returncode == 0, done.stderr
    done = run_command(
        "fairseq-preprocess", "-s", "en", "-t", "de", "--trainpref", pieces / "train", "--validpref", pieces / "valid",
        "--srcdict", pieces / "dict.txt", "--tgtdict", pieces / "dict.txt", "--destdir", tmp_path / "data",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shared = [
        tmp_path / "data", "--user-dir", user_dir, "--image-features", folder / "store", "--image-tags", minilm(),
        "--cpu",
    ]  # fmt: skip
    train = [*shared, "--image-ids", folder / "ids", "--optimizer", "adam", "--lr", 0.0001, "--batch-size", 8,
             "--max-update", 1, "--no-progress-bar", "--no-epoch-checkpoints"]  # fmt: skip
    task, arch, criterion = PRETRAINING
    done = run_command(
        "fairseq-train", *train, "--task", task, "--source-lang", "en", "--arch", arch, "--bert", minilm(),
        "--criterion", criterion, "--save-dir", tmp_path / "first",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "has no head for masked words" in done.stderr + done.stdout
    task, arch, criterion = TRANSLATION
    done = run_command(
        "fairseq-train", *train, "--task", task, "-s", "en", "-t", "de", "--arch", arch, *DECODER, "--criterion",
        criterion, "--visual-pretrained", tmp_path / "first/checkpoint_last.pt", "--save-dir", tmp_path / "second",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    captions = "".join(f"image{image}.jpg\ta {NOUNS[image % 4]}\n" for image in range(8))
    (tmp_path / "captions.tsv").write_text(captions)
    (tmp_path / "typed").write_text("The dog runs.\n")
    done = run_command(
        "fairseq-interactive", *shared, "--task", task, "-s", "en", "-t", "de", "--path",
        tmp_path / "second/checkpoint_last.pt", "--bpe", "pretrained_pieces", "--bpe-tokenizer", minilm(), "--input",
        tmp_path / "typed", "--max-len-b", 4, "--image-finder",
        f"keyword --captions {tmp_path}/captions.tsv --image-features {folder}/store -n 1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^I-0\timage[04].jpg", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^D-0\t", done.stdout, re.MULTILINE)
