"""Every numeric flag that this package adds to fairseq-train, given numbers that nobody means: it trains, or one line
says what is wrong. The twin of `cli/test_absurd_numbers.py`; a new flag is covered by one of `TRAININGS`, or fails.
"""

import copy
import dataclasses
import shutil
import typing
from argparse import ArgumentError, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_store
from damage import TooSlow, check_message, watched
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.train import main as fairseq_train
from house.flags import configs
from small_examples import make_world as make_examples
from small_grounded import make_world as make_lines
from small_matcher import make_bert
from small_pairs import write_pairs
from small_trained import SIZES, write_world
from small_voken_lm import TINY, make_voken_world
from vision_language import make_world as make_tagged

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError

VALUES = ["0", "-1", "0.5", str(2**31), str(2**63), "9" * 5000, "nan", "inf", "1e308", ""]
OTHERS = {"seed", "num_workers", "tokens_per_sample"}  # fairseq's own, or as another task's of fairseq has it
BERT = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]


def numeric_fields(config: type) -> set[str]:
    """The numbers among the flags that a dataclass itself adds."""
    kinds = typing.get_type_hints(config)
    own = {each.name for each in dataclasses.fields(config)} & set(vars(config).get("__annotations__", {}))
    return {name for name in own if {int, float} & {kinds[name], *typing.get_args(kinds[name])}}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Something to learn from for each task."""
    folder = tmp_path_factory.mktemp("worlds")
    write_world(folder / "animals")
    write_pairs(folder / "pairs")
    make_voken_world(folder / "vokens")
    for name, make in (("lines", make_lines), ("examples", make_examples), ("tagged", make_tagged)):
        (folder / name).mkdir()
        make(folder / name)
    write_store(folder / "photos", np.random.default_rng(0).normal(size=(12, 2, 6)))
    (folder / "captions.tsv").write_text("".join(f"image{row}.jpg\ta b c {'d' * (row % 2)}\n" for row in range(12)))
    make_bert(folder / "bert", list("abcd"))
    shutil.copy(folder / "captions.tsv", folder / "valid.tsv")
    captions = ["--train", str(folder / "captions.tsv"), "--valid", str(folder / "valid.tsv")]
    words = ["prepare", "captions", *captions, "--out", str(folder / "captions")]
    assert main(words) == 0
    return folder


def trainings(worlds: Path) -> dict[str, list[object]]:
    """Sound commands of fairseq-train, without what all have."""

    def images(name: str) -> list[object]:
        return ["--image-features", worlds / name / "store", "--image-ids", worlds / name / "ids"]

    def translation(arch: str) -> list[object]:
        words = [worlds / "animals/bin", "--task", "grounded_translation", "-s", "en", "-t", "de", "--arch", arch]
        return [*words, *SIZES, *images("animals"), "--criterion", "label_smoothed_cross_entropy"]

    matching = [worlds / "captions", "--task", "image_text_matching", "--image-features", worlds / "photos"]
    stream = ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 16]
    stream += ["--encoder-attention-heads", 2, "--max-source-positions", 64]
    return {
        "aware translation": translation("visual_aware_transformer"),
        "selective translation": translation("selective_attention_transformer"),
        "matching": [
            *matching, "--arch", "visual_semantic_embedding", "--criterion", "hardest_negative_triplet",
            "--text-embed-size", 4, "--sru-layers", 1, "--joint-size", 4,
        ],
        "token matching": [
            *matching, "--arch", "token_image_matching", "--criterion", "token_image_hinge", "--text-encoder",
            worlds / "bert", "--caption-pieces", 12, "--matcher-layers", 2,
        ],
        "vokens": [
            worlds / "vokens/bin", "--task", "voken_lm", "--vokens", worlds / "vokens/vokens", "--tokens-per-sample",
            12, "--arch", "voken_bert", *BERT, "--criterion", "voken_classification",
        ],
        "streams": [
            worlds / "pairs/bin", "--task", "visual_tlm", "--lang-pairs", "en-de", *images("pairs"), "--arch",
            "vtlm_tiny", *stream, "--criterion", "visual_tlm",
        ],
        "tagged": [
            worlds / "tagged/bin", "--task", "vision_language_pretraining", *images("tagged"), "--image-tags", "words",
            "--arch", "vlp_bert", *BERT, "--criterion", "masked_lm_with_paired_image",
        ],
        "lines": [
            worlds / "lines/text", "--task", "grounded_lm", "--arch", "grounded_albert", "--grounded-text-encoder",
            worlds / "lines/encoder", "--criterion", "grounded_masked_lm", "--caption-data", worlds / "lines/bin",
            *images("lines"), "--max-pieces", 20, "--grounding-objective", "both",
        ],
        "examples": [
            worlds / "examples/pairs", "--task", "grounded_sentence_prediction", "--arch", "visual_aware_bert",
            "--bert", worlds / "examples/encoder", "--criterion", "grounded_sentence_prediction",
            *images("examples"), "--max-pieces", 20,
        ],
    }  # fmt: skip


TRAININGS = list(trainings(Path("/")))


def parsed(words: list[object], out: Path) -> tuple[Any, Namespace]:
    """fairseq's parser with all flags that these words add, and what it makes of them."""
    parser = options.get_training_parser()
    common = ["--optimizer", "adam", "--lr", 0.01, "--batch-size", 4, "--max-update", 1, "--cpu", "--seed", 1]
    common += ["--num-workers", 0, "--save-dir", out, "--no-save", "--disable-validation", "--no-progress-bar"]
    return parser, options.parse_args_and_arch(parser, [str(word) for word in [*words, *common]])


def numeric_flags(parser: Any) -> Iterator[Any]:
    """The actions of this package's flags that read a number."""
    ours = {name for config in configs() for name in numeric_fields(config)} - OTHERS
    for action in parser._actions:
        if action.dest in ours and action.type is not None:
            yield action


def test_every_numeric_flag_is_one_of_a_training(worlds: Path, tmp_path: Path) -> None:
    covered = {
        action.dest for words in trainings(worlds).values() for action in numeric_flags(parsed(words, tmp_path)[0])
    }
    assert {name for config in configs() for name in numeric_fields(config)} - covered == OTHERS


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_absurd_flags_train_or_are_refused_in_a_line(
    worlds: Path, tmp_path: Path, name: str, record_property: Any
) -> None:
    parser, sound = parsed(trainings(worlds)[name], tmp_path)
    fairseq_train(convert_namespace_to_omegaconf(copy.deepcopy(sound)))
    tried, failed = 0, []
    for action in numeric_flags(parser):
        for value in VALUES:
            where = f"{name}: {action.option_strings[-1]} {value[:40]}"
            try:
                given = parser._get_value(action, value)
            except ArgumentError:  # argparse's own words
                continue
            args = Namespace(**{**vars(copy.deepcopy(sound)), action.dest: given})
            tried += 1
            try:
                with watched(tmp_path, seconds=60):
                    fairseq_train(convert_namespace_to_omegaconf(args))
            except InputError as error:
                check_message(str(error))
            except (Exception, TooSlow) as error:
                failed.append(f"{where}: {type(error).__name__}: {str(error)[:300]}")
    assert tried and not failed, "\n".join(failed)
    record_property("absurd", (name, tried))
