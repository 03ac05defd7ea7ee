"""The vokenizer's folder: what is saved is what is loaded, found by and refused; a broken folder is refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import write_store
from safetensors.torch import load_file, save_file
from small_matcher import make_matcher, make_token_matcher
from small_retriever import make_store, retrieve_dense

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

TOKENS = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 3, 0, 0]])  # [CLS] a b c [SEP]; [CLS] e [SEP]
PADDING = TOKENS == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`token/` and `sentence/`, and the BERT that they were made with."""
    folder = tmp_path_factory.mktemp("matchers")
    make_token_matcher(folder / "token")
    make_token_matcher(folder / "sentence", sentence_level=True, layers=3)
    return folder


def set_field(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_folder_holds_everything_and_gives_the_vectors_of_what_was_saved(made: Path, tmp_path: Path) -> None:
    matcher = make_matcher(made / "token-bert").eval()
    folder = shutil.copytree(made / "token", tmp_path / "moved")  # away from its encoder
    retriever: Any = Retriever.load(folder)
    assert (retriever.kind, retriever.signature, retriever.image_features) == ("token_matcher", "seed0", "test")
    assert (retriever.joint_size, retriever.image_feature_size, retriever.max_tokens) == (8, 6, 16)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "text_encoder"]
    tokens = retriever.embed_tokens(TOKENS, PADDING)
    assert not tokens.requires_grad
    with torch.no_grad():
        assert torch.equal(tokens, matcher.encode_tokens(TOKENS, PADDING))
        features, absent = torch.randn(2, 3, 6), torch.tensor([[False, False, True], [True, True, True]])
        assert torch.equal(retriever.embed_images(features, absent), matcher.encode_images(features, absent))
    assert tokens.shape == (2, 5, 8) and tokens.any(dim=2).tolist() == (~PADDING).tolist()
    mean = tokens.sum(dim=1) / (~PADDING).sum(dim=1, keepdim=True)  # [CLS] and [SEP] included
    torch.testing.assert_close(retriever.encode_text(["a b c", "e"]), mean / mean.norm(dim=1, keepdim=True))


def test_its_tokenizer_is_one_for_vokens(made: Path) -> None:
    assert TokenizerBridge(str(made / "token/text_encoder")).sha256 == TokenizerBridge(str(made / "token-bert")).sha256


def test_sentence_level_says_so_and_has_the_vector_of_the_first_piece_alone(made: Path) -> None:
    said = json.loads((made / "sentence/config.json").read_text())
    assert said["architecture"] == {
        "layers": 3, "image_feature_size": 6, "joint_size": 8, "hidden_size": 5, "dropout": 0.3, "sentence_level": True
    }  # fmt: skip
    retriever: Any = Retriever.load(made / "sentence")
    assert retriever.sentence_level and not Retriever.load(made / "token").sentence_level  # type: ignore[attr-defined]
    first = retriever.matcher.encode_tokens(TOKENS, PADDING)[:, 0]
    torch.testing.assert_close(retriever.encode_text(["a b c", "e"]), first)
    with pytest.raises(
        InputError, match=r"sentence should have a vector for each token, but was trained at sentence level"
    ):
        retriever.embed_tokens(TOKENS, PADDING)


def test_index_and_search_take_it_as_any_retriever(made: Path, tmp_path: Path) -> None:
    retriever: Any = Retriever.load(made / "token")
    store = FeatureStore(make_store(tmp_path / "store"))
    build_index(retriever, store, tmp_path / "index")
    index = Index(tmp_path / "index")
    features, absent = store.gather(np.arange(len(store)))
    vectors = retriever.encode_images(torch.from_numpy(features), torch.from_numpy(absent))
    np.testing.assert_allclose(index.embeddings, vectors.numpy(), atol=1e-6)
    sentences = ["a b c", "", "z y x w v", "q"]
    counts = retrieve_dense(retriever, index, sentences, tmp_path / "ids", images_per_sentence=3)
    scores = (retriever.encode_text(sentences) @ vectors.T).masked_fill(~vectors.any(dim=1), -2)
    ids = ImageIds(tmp_path / "ids").ids
    assert counts["empty"] == 1 and (ids[1] == -1).all()
    assert ids[[0, 2, 3]].tolist() == scores.topk(3).indices[[0, 2, 3]].tolist()


def test_image_is_the_mean_of_its_regions_however_many(made: Path) -> None:
    retriever = Retriever.load(made / "token")
    regions = torch.randn(2, 4, 6)
    present = torch.zeros(2, 4, dtype=torch.bool)
    found = retriever.encode_images(regions, present)
    torch.testing.assert_close(retriever.encode_images(regions.mean(dim=1, keepdim=True), present[:, :1]), found)
    with pytest.raises(InputError, match="images of any regions with 6 numbers, but these have 4 with 5"):
        retriever.encode_images(regions[..., :5], present)


def test_store_of_another_making_is_refused(made: Path, tmp_path: Path) -> None:
    retriever = Retriever.load(made / "token")
    retriever.check_store(FeatureStore(write_store(tmp_path / "same", np.ones((3, 1, 6)))))
    other = FeatureStore(write_store(tmp_path / "other", np.ones((3, 1, 6)), signature="extract|backbone:other"))
    with pytest.raises(InputError, match=r"extract\|backbone:other ≠ test"):
        retriever.check_store(other)


Break = Callable[[Path], object]


def break_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "text.output.bias": torch.full((8,), torch.nan)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors should be a state_dict .* again"),
        (break_weights, r"but 1 of \d+ have NaN or infinity \(text\.output\.bias\)"),
        (lambda folder: shutil.rmtree(folder / "text_encoder"), "text encoder .*text_encoder' should be"),
        (lambda folder: (folder / "text_encoder/config.json").write_text("{}"), "text encoder .*encoder' should be"),
    ],
)  # fmt: skip
def test_broken_folder_is_refused(made: Path, tmp_path: Path, break_it: Break, message: str) -> None:
    folder = shutil.copytree(made / "token", tmp_path / "broken")
    break_it(folder)
    with pytest.raises(InputError, match=message):
        Retriever.load(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("joint_size", 9, r"weights of this retriever, but has 4 of another shape \(text\.output\.weight is "),
        ("layers", 3, r"1 of another shape \(text\.hidden\.weight is \(5, 16\), not \(5, 24\)"),
        ("layers", 4, r"matcher layers should be 1 to 3, as many as the text encoder has, but are 4\."),
        ("layers", 10**9, "its architecture has 1000000000 as layers"),
        ("dropout", 1.5, r"its architecture has 1\.5 as dropout"),
        ("sentence_level", "no", "its architecture has 'no' as sentence_level"),
        ("more", 1, r"config\.json can't be used: .*unexpected keyword argument 'more'"),
    ],
)  # fmt: skip
def test_absurd_architecture_is_refused(made: Path, tmp_path: Path, field: str, value: Any, message: str) -> None:
    folder = shutil.copytree(made / "token", tmp_path / "broken")
    architecture = {**json.loads((folder / "config.json").read_text())["architecture"], field: value}
    set_field(folder / "config.json", architecture=architecture)
    with pytest.raises(InputError, match=message):
        Retriever.load(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_hidden_layers", 10**9, r"config\.json has 1000000000 as num_hidden_layers"),
        ("num_attention_heads", 3, "text_encoder should describe a text encoder, but none can be built from it"),
        ("hidden_size", 16, "of another shape"),
    ],
)
def test_absurd_text_encoder_is_refused(made: Path, tmp_path: Path, field: str, value: int, message: str) -> None:
    folder = shutil.copytree(made / "token", tmp_path / "broken")
    set_field(folder / "text_encoder/config.json", **{field: value})
    with pytest.raises(InputError, match=message):
        Retriever.load(folder)


def test_it_works_where_fairseq_and_torchvision_are_not_installed(made: Path) -> None:
    script = (
        "import sys; sys.modules['fairseq'] = sys.modules['torchvision'] = None\n"
        "import torch\n"
        "from visual_grounding.retrieval.retriever import Retriever\n"
        f"retriever = Retriever.load({str(made / 'token')!r})\n"
        "tokens = torch.tensor(retriever.tokenize(['a b'])[0])\n"
        "print(tuple(retriever.embed_tokens(tokens, tokens == 0).shape))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 4, 8)", done.stderr
