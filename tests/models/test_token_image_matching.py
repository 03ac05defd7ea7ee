"""The matcher as a fairseq model under its task: what it refuses, scores over a split, and training that goes on."""

import logging
import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import write_store
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli.train import main as fairseq_train
from small_matcher import make_bert

from visual_grounding.criterions.token_image_hinge import TokenImageHingeCriterion
from visual_grounding.errors import InputError
from visual_grounding.models.token_image_matching import TokenImageMatchingConfig, TokenImageMatchingModel
from visual_grounding.models.visual_semantic_embedding import (
    VisualSemanticEmbeddingConfig,
    VisualSemanticEmbeddingModel,
)
from visual_grounding.retrieval.recall import recall_summary, token_recall_summary
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.tasks.image_text_matching import ImageTextMatchingConfig, ImageTextMatchingTask
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer

IMAGES = 8


@pytest.fixture
def config(tmp_path: Path) -> ImageTextMatchingConfig:
    """8 images of 6 numbers, one of them absent, with 21 captions of 2 to 9 words."""
    features = np.random.default_rng(0).normal(size=(IMAGES, 1, 6))
    features[5] = 0
    write_store(tmp_path / "store", features)
    (tmp_path / "dict.txt").write_text("a 1\n")
    rng = np.random.default_rng(1)
    lines = [f"image{row % IMAGES}.jpg\t{' '.join(rng.choice(list('abcdefgh'), 2 + row % 8))}\n" for row in range(21)]
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    bert = make_bert(tmp_path / "bert")
    return ImageTextMatchingConfig(
        data=str(tmp_path), image_features=str(tmp_path / "store"), text_encoder=str(bert), caption_pieces=8
    )


def build(config: ImageTextMatchingConfig, **flags: Any) -> tuple[ImageTextMatchingTask, TokenImageMatchingModel]:
    task = ImageTextMatchingTask.setup_task(config)
    sizes = {"joint_size": 5, "matcher_layers": 2, "matcher_hidden_size": 8, "text_encoder": config.text_encoder}
    torch.manual_seed(0)
    return task, TokenImageMatchingModel.build_model(TokenImageMatchingConfig(**{**sizes, **flags}), task)


@pytest.mark.parametrize(
    ("model", "flags", "given"),
    [
        (TokenImageMatchingModel, TokenImageMatchingConfig, "matcher_dropout"),
        (VisualSemanticEmbeddingModel, VisualSemanticEmbeddingConfig, "text_dropout"),
        (VisualSemanticEmbeddingModel, VisualSemanticEmbeddingConfig, "image_dropout"),
    ],
)
def test_a_dropout_that_is_no_share_is_refused(config: ImageTextMatchingConfig, model: Any, flags: Any, given: str):
    task = ImageTextMatchingTask.setup_task(config)
    with pytest.raises(InputError, match=f"--{given.replace('_', '-')} should be at least 0 and less than 1, but is 7"):
        model.build_model(flags(text_encoder=config.text_encoder, **{given: 7.0}), task)


def validate(task: ImageTextMatchingTask, model: Any, batches: list[list[int]]) -> dict[str, float]:
    """As `fairseq-train` does: one `valid_step` and one `reduce_metrics` a batch, inside one aggregator a split."""
    criterion = TokenImageHingeCriterion(task, 0.5, "all").eval()
    dataset = task.dataset("valid")
    with metrics.aggregate(new_root=True) as scores:
        for batch in batches:
            _, _, logged = task.valid_step(dataset.collater([dataset[index] for index in batch]), model, criterion)
            task.reduce_metrics([logged], criterion)
    return dict(scores.get_smoothed_values())


def test_scores_are_exact_over_the_whole_split_whatever_the_batches(config) -> None:
    task, model = build(config)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[index] for index in range(21)])
    with torch.no_grad():
        tokens, images = model.eval()(**sample["net_input"])
    rows = sample["image_rows"]
    by_row = torch.stack([images[rows.tolist().index(row)] for row in range(IMAGES)])
    lengths = (~sample["net_input"]["token_padding_mask"]).sum(dim=1).tolist()
    words = torch.zeros(21, 6, 5)  # the longest captions are cut at 8 pieces, [CLS] and [SEP] among them
    for caption, length in enumerate(lengths):
        words[caption, : length - 2] = tokens[caption, 1 : length - 1]
    means = torch.stack([tokens[n, :length].mean(dim=0) for n, length in enumerate(lengths)])
    sentences = means / means.norm(dim=1, keepdim=True)
    expected = {**recall_summary(sentences, by_row, rows), **token_recall_summary(words, by_row, rows)}
    assert len(expected) == 13
    for batches in ([list(range(21))], [[20, 3], list(range(3)), list(range(4, 20)), [20, 3], []]):
        scores = validate(task, model, batches)
        assert {name: scores[name] for name in expected} == {name: round(expected[name], 4) for name in expected}
        assert all(type(scores[name]) is float for name in expected)
    assert scores["absent"] == 2


def test_sentence_matcher_has_the_scores_of_sentences_alone(config, caplog) -> None:
    task, model = build(config, sentence_level=True)
    task.load_dataset("valid")
    caplog.clear()
    scores = validate(task, model, [list(range(21))])
    assert "text_to_image_r10" in scores and "token_to_image_r10" not in scores and not caplog.text


def test_captions_are_cut_where_the_flag_says_with_a_count(config, caplog) -> None:
    task = ImageTextMatchingTask.setup_task(config)
    task.load_dataset("train")
    assert re.search(r"6 of 21 captions in .*train\.tsv were cut at 8 tokens\.", caplog.text)
    assert max(task.dataset("train").sizes) == 8
    config.caption_pieces = None
    caplog.clear()
    task = ImageTextMatchingTask.setup_task(config)
    task.load_dataset("train")
    assert max(task.dataset("train").sizes) == 11 and "were cut" not in caplog.text


@pytest.mark.parametrize(
    ("encoder", "pieces", "bounds"), [("bert", 2, "3 to 16"), ("bert", 17, "3 to 16"), ("bag", 0, "1 to 256")]
)
def test_captions_cannot_be_cut_to_nothing_or_beyond_the_encoders_limit(config, encoder, pieces, bounds) -> None:
    config.text_encoder = encoder if encoder == "bag" else config.text_encoder
    config.caption_pieces = pieces
    with pytest.raises(
        InputError, match=rf"--caption-pieces should be {bounds}, as --text-encoder .* but is {pieces}\."
    ):
        ImageTextMatchingTask.setup_task(config)


@pytest.mark.parametrize("encoder", ["bag", "sru"])
def test_words_that_are_learned_are_refused_by_name(config, encoder) -> None:
    config.text_encoder = encoder
    with pytest.raises(InputError, match=f"token_image_matching needs a pretrained --text-encoder .* is '{encoder}'"):
        build(config)


@pytest.mark.parametrize("size", [-1.0, float("nan"), 1e300])
def test_memory_that_no_machine_has_is_refused(config: ImageTextMatchingConfig, size: float) -> None:
    with pytest.raises(InputError, match=r"--keep-encoder-states should be 0 to 1000000 gigabytes, but is "):
        build(config, keep_encoder_states=size)


def test_more_layers_than_the_encoder_has_are_refused(config) -> None:
    with pytest.raises(InputError, match=r"matcher layers should be 1 to 3, .* but are 4\."):
        build(config, matcher_layers=4)


def test_pictures_are_refused() -> None:
    task = Namespace(image_store=object(), take_image_network=None)
    flags = TokenImageMatchingConfig(text_encoder="some/folder")
    with pytest.raises(
        InputError, match=r"but --image-folder gives pictures\. .*: visual-grounding extract … --pool mean"
    ):
        TokenImageMatchingModel.build_model(flags, task)


def test_sentence_level_needs_a_piece_before_a_sentence(config, tmp_path) -> None:
    from small_tokenizers import make_tokenizer
    from transformers import GPT2Config, GPT2Model

    folder = make_tokenizer(tmp_path / "gpt2", "gpt2")
    GPT2Model(GPT2Config(vocab_size=301, n_positions=16, n_embd=8, n_layer=2, n_head=2)).save_pretrained(folder)
    config.text_encoder = str(folder)
    _, model = build(config)  # tokens do without
    assert model.matcher.text.hidden.in_features == 2 * 8
    with pytest.raises(
        InputError, match=r"first piece, but the tokenizer of .*gpt2 puts none such as \[CLS\] before it"
    ):
        build(config, sentence_level=True)


def test_model_takes_no_more_than_one_image_and_says_what_does_not_fit(config) -> None:
    task, model = build(config)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    batch = dataset.collater([dataset[0], dataset[1]])["net_input"]
    visual = {name: value.repeat(1, 2, *[1] * (value.dim() - 2)) for name, value in batch["visual"].items()}
    with pytest.raises(ValueError, match="each sentence should have 1 image, but has 2"):
        model(**{**batch, "visual": visual})
    message = r"4 of another shape \(matcher\.text\.output\.weight is \(7, 8\), not \(5, 8\)"
    with pytest.raises(InputError, match=message):
        model.load_state_dict(build(config, joint_size=7)[1].state_dict())


@pytest.fixture
def clean_fairseq() -> Iterator[None]:
    """What fairseq remembers of a training in its modules is forgotten after it."""
    yield
    metrics.reset()
    vars(checkpoint_utils.save_checkpoint).pop("best", None)


def parsed(config: ImageTextMatchingConfig, save_dir: Path, max_update: int, *more: object) -> Any:
    """What `fairseq-train` makes of a command line; the training set has six batches."""
    flags = [
        config.data, "--task", "image_text_matching", "--arch", "token_image_matching", "--criterion",
        "token_image_hinge", "--image-features", config.image_features, "--text-encoder", config.text_encoder,
        "--caption-pieces", 8, "--joint-size", 5, "--matcher-layers", 2, "--matcher-hidden-size", 8,
        "--batch-size", 4, "--optimizer", "adam", "--lr", 0.05, "--weight-decay", 0.1, "--cpu", "--seed", 1,
        "--num-workers", 0, "--no-epoch-checkpoints", "--no-progress-bar", "--log-format", "simple",
        "--max-update", max_update, "--save-dir", save_dir,
        "--best-checkpoint-metric", "token_to_image_r10", "--maximize-best-checkpoint-metric", *more,
    ]  # fmt: skip
    arguments = options.parse_args_and_arch(options.get_training_parser(), [str(flag) for flag in flags])
    return convert_namespace_to_omegaconf(arguments)


def train(config: ImageTextMatchingConfig, save_dir: Path, max_update: int, *more: object) -> dict[str, Any]:
    """`fairseq-train`, in this process."""
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    fairseq_train(parsed(config, save_dir, max_update, *more))
    return load_checkpoint(save_dir / "checkpoint_last.pt")


def test_margin_negatives_and_dropout_are_those_of_the_flags(config, tmp_path) -> None:
    flags = ("--token-image-margin", 0.2, "--token-image-negatives", "all", "--matcher-dropout", 0.6)
    for more, expected in (((), (0.5, "one", 0.3)), (flags, (0.2, "all", 0.6))):
        cfg = parsed(config, tmp_path, 1, *more)
        task = ImageTextMatchingTask.setup_task(cfg.task)
        matcher, criterion = task.build_model(cfg.model).matcher, task.build_criterion(cfg.criterion)
        assert matcher.text.dropout == matcher.image.dropout
        assert (criterion.margin, criterion.negatives, matcher.text.dropout) == expected


def test_an_update_of_several_batches_is_the_mean_over_all_their_tokens(config, tmp_path, clean_fairseq) -> None:
    """However many tokens each batch has."""
    flags = ("--optimizer", "sgd", "--matcher-dropout", 0, "--weight-decay", 0, "--clip-norm", 0)
    before = train(config, tmp_path / "still", 1, *flags, "--lr", 0)["model"]
    after = train(config, tmp_path / "moved", 1, *flags, "--lr", 1, "--update-freq", 6)["model"]
    cfg = parsed(config, tmp_path, 1, *flags)
    task = ImageTextMatchingTask.setup_task(cfg.task)
    model, criterion = task.build_model(cfg.model).train(), task.build_criterion(cfg.criterion)
    model.load_state_dict(before)
    task.load_dataset("train")
    dataset = task.dataset("train")
    batches = task.get_batch_iterator(dataset, max_sentences=4, seed=1).frozen_batches
    assert len(batches) == 6
    losses = [criterion(model, dataset.collater([dataset[index] for index in batch])) for batch in batches]
    terms = [terms for _, terms, _ in losses]
    assert len(set(terms)) > 2
    (sum(loss for loss, _, _ in losses) / sum(terms)).backward()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None and weight.grad.any()
            torch.testing.assert_close(after[name], before[name] - weight.grad)


@pytest.mark.parametrize(
    "more", [(), ("--token-image-negatives", "all", "--sentence-level", "--best-checkpoint-metric", "loss")]
)
def test_training_that_stopped_within_an_epoch_goes_on_as_if_it_had_not(
    config, tmp_path, caplog, clean_fairseq, more
) -> None:
    caplog.set_level(logging.INFO)
    at_once = train(config, tmp_path / "at once", 4, *more)["model"]
    state = train(config, tmp_path / "twice", 2, *more)
    assert state["extra_state"]["train_iterator"]["iterations_in_epoch"] == 2
    half, twice = state["model"], train(config, tmp_path / "twice", 4, *more)["model"]
    assert "Loaded checkpoint" in caplog.text
    assert all(torch.equal(weight, twice[name]) for name, weight in at_once.items())
    learned = {name for name, weight in half.items() if not torch.equal(weight, twice[name])}
    # All but the encoder's, which weight decay leaves alone, too.
    assert learned == {name for name in half if not name.startswith("matcher.encoder.")} and len(learned) == 8
    if not more:
        assert "token_to_image_r10" in caplog.text and "(epoch 1 @ 4 updates, score " in caplog.text


def test_the_best_sentence_matcher_is_not_chosen_by_scores_of_tokens(config, tmp_path) -> None:
    """fairseq would look for the score after the first epoch, and end before it saves anything."""
    cfg = parsed(config, tmp_path, 1, "--sentence-level")
    task = ImageTextMatchingTask.setup_task(cfg.task)
    with pytest.raises(
        InputError, match="--best-checkpoint-metric token_to_image_r10 is of tokens, but --sentence-lev"
    ):
        task.build_model(cfg.model)
    cfg = parsed(config, tmp_path, 1, "--sentence-level", "--best-checkpoint-metric", "text_to_image_r10")
    ImageTextMatchingTask.setup_task(cfg.task).build_model(cfg.model)


def test_training_goes_on_with_the_same_level_and_tokenizer(config, tmp_path, clean_fairseq) -> None:
    """Weights of another would fit, but mean something else."""
    save_dir = tmp_path / "s"
    metric = ("--best-checkpoint-metric", "loss", "--disable-validation")
    train(config, save_dir, 1, *metric, "--sentence-level")
    with pytest.raises(InputError, match=r"--sentence-level should be True, as .* was trained with, but is False"):
        train(config, save_dir, 2, *metric)
    pieces = [piece for piece in PretrainedTokenizer(config.text_encoder).symbols()[:-1] if not piece.startswith("[")]
    other = make_bert(tmp_path / "other", pieces[::-1])
    config.text_encoder = str(other)
    with pytest.raises(
        InputError, match=r"other should have the words that the checkpoint .*Give the --text-encoder th"
    ):
        train(config, save_dir, 2, *metric, "--sentence-level")
