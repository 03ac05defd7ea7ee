"""Text encoders of other languages: an XLM-R with its tokenizer from training to retrieval; German and photos."""

import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command
from conftest import write_store

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.modules.sentence_encoders import PretrainedSentenceEncoder, load_pretrained_encoder
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.recall import recall_summary
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer

COLOURS = ["rot", "grün", "weiß", "schwarz"]
THINGS = ["Hündin", "Tür", "Schüssel"]


def sentences() -> list[str]:
    """Two German sentences for each of twelve coloured things."""
    return [
        sentence
        for colour in COLOURS
        for thing in THINGS
        for sentence in (f"Die {thing} ist {colour}.", f"eine {colour}e {thing} auf der Straße")
    ]


@pytest.fixture(scope="module")
def xlm_roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An XLM-R of random weights whose unigram tokenizer was trained on those sentences, as transformers saves it."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

    folder = tmp_path_factory.mktemp("xlmr") / "tiny"
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.train_from_iterator(sentences(), trainers.UnigramTrainer(vocab_size=60, special_tokens=["<unk>"]))
    learned = [(piece, score) for piece, score in json.loads(pieces.to_str())["model"]["vocab"] if piece != "<unk>"]
    special = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary = [*special, *learned, ("<mask>", 0.0)]
    XLMRobertaTokenizer(vocab=vocabulary).save_pretrained(folder)  # it says no limit
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = XLMRobertaConfig(vocab_size=len(vocabulary), max_position_embeddings=34, type_vocab_size=1, **size)
    XLMRobertaModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images (one-hot colour and thing) with two German captions each; a data folder."""
    folder = tmp_path_factory.mktemp("german")
    features = np.zeros((12, 1, 7))
    for row in range(12):
        features[row, 0, [row // 3, 4 + row % 3]] = 1
    write_store(folder / "store", features)
    lines = [f"image{number // 2}.jpg\t{sentence}\n" for number, sentence in enumerate(sentences())]
    (folder / "captions.tsv").write_text("".join(lines), encoding="utf-8")
    shutil.copy(folder / "captions.tsv", folder / "valid.tsv")
    done = run_command(
        "visual-grounding", "prepare", "--train", folder / "captions.tsv", "--valid", folder / "valid.tsv",
        "--out", folder / "data",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_tokenizer_keeps_umlauts_in_either_form_and_cuts_where_positions_end(xlm_roberta):
    tokenizer = PretrainedTokenizer(str(xlm_roberta))
    # 34 positions, of which XLM-R's begin after that of the padding symbol, number 1
    assert (tokenizer.max_tokens, tokenizer.pad) == (32, 1)
    line = "Die Hündin ist weiß."
    (numbers,), cut = tokenizer.encode([line])
    assert cut == 0 and numbers[0] == 0 and numbers[-1] == 2 and 3 not in numbers  # <s> … </s>, nothing unknown
    assert tokenizer.tokenizer.decode(numbers, skip_special_tokens=True) == line
    assert tokenizer.encode([unicodedata.normalize("NFD", line)]) == ([numbers], 0)
    (long,), cut = tokenizer.encode([line * 9])
    assert (len(long), long[-1], cut) == (32, 2, 1)
    encoder = PretrainedSentenceEncoder(load_pretrained_encoder(str(xlm_roberta)), freeze=True).eval()
    tokens = torch.tensor([long])
    assert encoder(tokens, torch.zeros_like(tokens, dtype=torch.bool)).isfinite().all()
    with pytest.raises((IndexError, RuntimeError)):  # one more than there are positions
        encoder(torch.tensor([[*long, 2]]), torch.zeros(1, 33, dtype=torch.bool))


def test_sentence_vector_is_the_mean_of_the_last_layer_over_all_real_tokens(xlm_roberta):
    """As sentence encoders are trained: the special tokens count, padding doesn't."""
    tokenizer = PretrainedTokenizer(str(xlm_roberta))
    model = load_pretrained_encoder(str(xlm_roberta)).eval()
    lines = sentences()[:3]
    expected = []
    for line in lines:
        inputs = tokenizer.tokenizer(line, return_tensors="pt")
        with torch.no_grad():
            expected.append(model(**inputs).last_hidden_state[0].mean(dim=0))
    encoded = tokenizer.encode(lines)[0]
    width = max(map(len, encoded)) + 2
    tokens = torch.tensor([[*numbers, *[tokenizer.pad] * (width - len(numbers))] for numbers in encoded])
    padding = torch.tensor([[number >= len(numbers) for number in range(width)] for numbers in encoded])
    with torch.no_grad():
        vectors = PretrainedSentenceEncoder(model, freeze=True).eval()(tokens, padding)
    torch.testing.assert_close(vectors, torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_multilingual_retriever_from_training_to_image_ids(xlm_roberta, captions, user_dir, tmp_path):
    source = shutil.copytree(xlm_roberta, tmp_path / "encoder")
    done = run_command(
        "fairseq-train", captions / "data", "--user-dir", user_dir, "--task", "image_text_matching",
        "--arch", "visual_semantic_embedding", "--criterion", "hardest_negative_triplet", "--text-encoder", source,
        "--image-features", captions / "store", "--joint-size", 16, "--batch-size", 12, "--triplet-direction", "both",
        "--joint-batch-norm", "--image-dropout", 0, "--text-dropout", 0, "--optimizer", "adam", "--lr", 0.01,
        "--max-epoch", 25, "--cpu", "--seed", 1, "--num-workers", 0, "--no-epoch-checkpoints", "--no-last-checkpoints",
        "--best-checkpoint-metric", "recall_sum", "--maximize-best-checkpoint-metric", "--save-dir", tmp_path,
        "--no-progress-bar", "--log-format", "simple",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (tmp_path / "text").write_text("".join(line + "\n" for line in sentences()), encoding="utf-8")
    for command in (
        ["export", "--checkpoint", tmp_path / "checkpoint_best.pt", "--out", tmp_path / "retriever"],
        ["index", "--retriever", tmp_path / "retriever", "--image-features", captions / "store", "--out",
         tmp_path / "index"],
        ["retrieve", "--method", "dense", "--retriever", tmp_path / "retriever", "--index", tmp_path / "index",
         "--text", tmp_path / "text", "-n", 3, "--out", tmp_path / "ids"],
    ):  # fmt: skip
        done = run_command("visual-grounding", *command)
        assert done.returncode == 0, done.stderr
        if command[0] == "export":
            shutil.rmtree(source)  # the retriever's folder is enough from here on
    ids = ImageIds(tmp_path / "ids").ids
    found = (ids == np.repeat(np.arange(12), 2)[:, None]).any(axis=1)
    assert found.mean() > 0.7, ids  # by chance 0.25
    assert Retriever.load(tmp_path / "retriever").max_tokens == 32


def test_encoder_with_a_decoder_is_refused(tmp_path):
    from transformers import T5Config

    T5Config(vocab_size=10, d_model=8, num_layers=1, num_heads=1, d_kv=8, d_ff=8).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"should be an encoder such as BERT or XLM-R, but is .* decoder \(t5\)"):
        PretrainedTokenizer(str(tmp_path))


def write_german(data: Path, folder: Path) -> None:
    """The German rows whose photo is here as captions, and the photos' features as a store."""
    rows = data / "flickr8k/multi30k_with_images"
    for split, name in {"train": "train", "val": "val", "test": "test"}.items():
        lines = (rows / f"{name}.de").read_text(encoding="utf-8").splitlines()
        header, *index = (line.split("\t") for line in (rows / f"{name}.index.tsv").read_text().splitlines())
        keys = [entry[header.index("flickr8k_image")] for entry in index]
        text = "".join(f"{key}\t{line}\n" for key, line in zip(keys, lines, strict=True))
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    names = (data / "flickr8k/images.tsv").read_text().splitlines()[1:]
    features = np.load(data / "flickr8k/features/mobilenet1.0_pooled1024.npy", mmap_mode="r")
    write_store(folder / "store", features[:, None], [line.split("\t")[1] for line in names])


@pytest.mark.data
@pytest.mark.slow
def test_german_sentences_find_their_photos(real_data, user_dir, tmp_path):
    """Trained on 5,199 German sentences; 467 test sentences look for their photo among 467 (by chance 2 % at 10)."""
    write_german(real_data, tmp_path)
    done = run_command(
        "visual-grounding", "prepare", "--train", tmp_path / "train.tsv", "--valid", tmp_path / "val.tsv",
        "--out", tmp_path / "data", "--min-count", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = run_command(
        "fairseq-train", tmp_path / "data", "--user-dir", user_dir, "--task", "image_text_matching",
        "--arch", "visual_semantic_embedding", "--criterion", "hardest_negative_triplet", "--text-encoder", "bag",
        "--image-features", tmp_path / "store", "--joint-size", 256, "--text-embed-size", 256, "--joint-batch-norm",
        "--triplet-direction", "both", "--batch-size", 128, "--optimizer", "adam", "--lr", 0.001, "--max-epoch", 12,
        "--cpu", "--seed", 1, "--num-workers", 0, "--no-epoch-checkpoints", "--no-last-checkpoints",
        "--best-checkpoint-metric", "recall_sum", "--maximize-best-checkpoint-metric", "--save-dir", tmp_path,
        "--no-progress-bar", "--log-format", "simple",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = run_command(
        "visual-grounding", "export", "--checkpoint", tmp_path / "checkpoint_best.pt", "--data", tmp_path / "data",
        "--out", tmp_path / "retriever",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pairs = [line.split("\t") for line in (tmp_path / "test.tsv").read_text(encoding="utf-8").splitlines()]
    store = FeatureStore(tmp_path / "store")
    rows = store.rows_of(key for key, _ in pairs)
    photos = sorted(set(rows.values()))
    retriever = Retriever.load(tmp_path / "retriever")
    features, mask = store.gather(np.array(photos))
    images = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(mask))
    text = retriever.encode_text([line for _, line in pairs])
    scores = recall_summary(text, images, torch.tensor([photos.index(rows[key]) for key, _ in pairs]))
    print({name: round(value, 3) for name, value in scores.items()})
    assert scores["text_to_image_r10"] > 0.35, scores
