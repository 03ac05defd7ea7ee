"""A piece's voken is the image nearest to it in its sentence, whatever batches it was read in."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import write_store
from small_matcher import SIZES, make_bert, make_matcher, make_token_matcher
from small_tokenizers import make_tokenizer
from torch.nn import functional

from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.retrieval.token_matcher import save_token_matcher
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer
from visual_grounding.text.sentences import sentence_starts
from visual_grounding.vokenization import vokenizer as module
from visual_grounding.vokenization.candidates import Candidates, choose_candidates
from visual_grounding.vokenization.cutting import Cutter
from visual_grounding.vokenization.vokenizer import SentenceVokenizer, TokenVokenizer

LINES = ["a b c d! E f g", "", "h", "i j k l m n o p q r s t u v w x y z a b c d e", "z z z! A a! B"]
WORDS = [*"abcdefghijklmnopqrstuvwxyz", "!"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A matcher, an index of 40 images of which the third is absent, and what cuts text."""
    folder = tmp_path_factory.mktemp("world")
    features = np.random.default_rng(0).normal(size=(40, 1, 6)).astype(np.float16)
    features[2] = 0
    make_bert(folder / "matcher-bert", WORDS)
    retriever = make_token_matcher(folder / "matcher", image_features=None)
    build_index(retriever, FeatureStore(write_store(folder / "store", features)), folder / "index")
    index = Index(folder / "index")
    return retriever, index, Cutter(str(folder / "matcher" / "text_encoder"), window=10)


def all_candidates(index):
    return choose_candidates(index, index.embeddings.any(axis=1))


def naive_vectors(retriever, cutter, line):
    """Vectors of a line's pieces, one sentence at a time, in parts of the window's size, without a batch."""
    bert = retriever.matcher.encoder
    found = []
    starts = [*sentence_starts(line), len(line)]
    for start, stop in pairwise(starts):
        ids = cutter.bridge.tokenizer(line[start:stop], add_special_tokens=False)["input_ids"]
        parts = -(-len(ids) // cutter.window) if ids else 0
        for part in np.array_split(ids, parts) if parts else []:
            opening, closing = cutter.bridge.tokenizer.cls_token_id, cutter.bridge.tokenizer.sep_token_id
            tokens = torch.tensor([[opening, *part, closing]])
            with torch.no_grad():
                states = bert(tokens, output_hidden_states=True).hidden_states[-2:]
            for state in torch.cat(states, dim=-1)[0, 1:-1]:
                text = retriever.matcher.text
                hidden = functional.relu(state @ text.hidden.weight.T + text.hidden.bias)
                vector = hidden @ text.output.weight.T + text.output.bias
                found.append((vector / vector.norm()).detach().numpy())
    return found


@pytest.fixture(scope="module")
def roberta_world(tmp_path_factory):
    """The same with a RoBERTa: byte-level pieces; positions are counted from its padding's number on."""
    from transformers import RobertaConfig, RobertaModel

    folder = tmp_path_factory.mktemp("roberta")
    make_tokenizer(folder / "roberta", "bytes")
    torch.manual_seed(0)
    config = RobertaConfig(vocab_size=400, max_position_embeddings=20, pad_token_id=1, **SIZES)
    RobertaModel(config).save_pretrained(folder / "roberta")
    tokenizer = PretrainedTokenizer(str(folder / "roberta"))
    assert tokenizer.tokenizer.pad_token_id == 1 and len(tokenizer.tokenizer) <= config.vocab_size
    features = np.random.default_rng(0).normal(size=(40, 1, 6)).astype(np.float16)
    save_token_matcher(folder / "matcher", make_matcher(folder / "roberta"), tokenizer, "roberta", None)
    retriever = Retriever.load(folder / "matcher")
    build_index(retriever, FeatureStore(write_store(folder / "store", features)), folder / "index")
    return retriever, Index(folder / "index"), Cutter(str(folder / "matcher" / "text_encoder"), window=10)


@pytest.mark.parametrize("kind", ["world", "roberta_world"])
@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_vokens_are_those_of_a_naive_loop(request, kind, batch_tokens):
    retriever, index, cutter = request.getfixturevalue(kind)
    candidates = all_candidates(index)
    text = cutter.cut(LINES)
    labels = TokenVokenizer(retriever, index, candidates, batch_tokens).label_pieces(text, 0)
    expected = [vector for line in LINES for vector in naive_vectors(retriever, cutter, line)]
    assert len(expected) == len(text) == len(labels.vokens)
    for voken, score, vector in zip(labels.vokens, labels.scores, expected):
        scores = [float(vector @ index.embeddings[row]) for row in candidates.rows]
        assert scores[voken] == pytest.approx(max(scores), abs=1e-5) == pytest.approx(score, abs=1e-5)
    assert len(set(labels.vokens)) > 3 and len(np.unique(text.sizes)) > 3


def test_batches_hold_windows_of_similar_sizes_up_to_their_budget(world):
    retriever, index, cutter = world
    lengths = np.random.default_rng(0).integers(1, 9, 300)
    text = cutter.cut([" ".join("a" * length) for length in lengths])
    batches = list(TokenVokenizer(retriever, index, all_candidates(index), 120)._batches(text, np.arange(300)))
    assert sorted(np.concatenate([chosen for chosen, _, _ in batches]).tolist()) == list(range(300))
    positions = sum(tokens.numel() for _, tokens, _ in batches)
    assert max(tokens.numel() for _, tokens, _ in batches) <= 120 and len(batches) < 25
    assert sum(int(padding.sum()) for _, _, padding in batches) < 0.05 * positions  # in the text's order a third


def test_vokens_do_not_depend_on_the_batch(world):
    retriever, index, cutter = world
    text = cutter.cut(LINES)
    alone, together = (
        TokenVokenizer(retriever, index, all_candidates(index), size).label_pieces(text, 0) for size in (1, 10_000)
    )
    assert alone.vokens.tolist() == together.vokens.tolist()
    np.testing.assert_allclose(alone.scores, together.scores, atol=1e-5)


def test_vokens_are_among_the_candidates(world):
    retriever, index, cutter = world
    text = cutter.cut(LINES)
    whole = all_candidates(index)
    rows = whole.rows[TokenVokenizer(retriever, index, whole).label_pieces(text, 0).vokens]
    few = Candidates(np.unique(rows)[[1, 0]], ["b", "a"])
    vokens = TokenVokenizer(retriever, index, few).label_pieces(text, 0).vokens
    assert set(vokens) == {0, 1}
    kept = np.isin(rows, few.rows)  # the best of all is the best of some
    assert (few.rows[vokens][kept] == rows[kept]).all() and 0 < kept.sum() < len(kept)
    assert 2 not in rows  # the absent one


def test_sentence_vokens_are_alike_within_a_sentence(world):
    retriever, index, cutter = world
    text = cutter.cut(LINES)
    vokenizer = SentenceVokenizer(retriever, index, all_candidates(index), 30)
    labels = vokenizer.label_pieces(text, 0)
    of_piece = np.repeat(text.sentences, text.sizes)
    assert vokenizer.label == "sentence" and text.counts["windowed"] == 1
    tokens = retriever.tokenizer.encode(["e f g"])[0]
    vector = retriever.encode_tokens(tokens)[0].numpy()
    scores = index.embeddings[all_candidates(index).rows] @ vector
    for sentence in range(text.counts["sentences"]):
        assert len(set(labels.vokens[of_piece == sentence])) == 1
    second = labels.vokens[of_piece == 1]
    assert second[0] == scores.argmax() and labels.scores[of_piece == 1][0] == pytest.approx(scores.max(), abs=1e-5)


def test_a_sentence_level_matcher_gives_sentences_alone(world, tmp_path):
    _, index, cutter = world
    make_bert(tmp_path / "level-bert", WORDS)
    retriever = make_token_matcher(tmp_path / "level", image_features=None, sentence_level=True)
    store = FeatureStore(write_store(tmp_path / "store", np.random.default_rng(1).normal(size=(9, 1, 6))))
    build_index(retriever, store, tmp_path / "index")
    own = Index(tmp_path / "index")
    text = cutter.cut(LINES)
    labels = SentenceVokenizer(retriever, own, all_candidates(own)).label_pieces(text, 0)
    vector = retriever.encode_tokens(retriever.tokenizer.encode(["h"])[0])[0].numpy()
    assert labels.vokens[text.lengths[:2].sum()] == (own.embeddings @ vector).argmax()
    with pytest.raises(InputError, match=r"needs a vector of each token, but .* Take method sentence"):
        TokenVokenizer(retriever, own, all_candidates(own))
    with pytest.raises(InputError, match="was made by another retriever"):
        SentenceVokenizer(retriever, index, all_candidates(index))


def test_an_index_of_another_dimension_is_refused(world, tmp_path):
    retriever, index, _ = world
    folder = shutil.copytree(index.folder, tmp_path / "index")
    np.save(folder / "embeddings.npy", np.ascontiguousarray(index.embeddings[:, :-1]))
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "size": meta["size"] - 1}))
    changed = Index(folder)
    with pytest.raises(InputError, match=r"has vectors of \d+ numbers, where .*matcher, which made it, gives \d+"):
        TokenVokenizer(retriever, changed, all_candidates(changed))


def test_what_decides_the_vokens_is_in_the_plan(world):
    retriever, index, _ = world
    few = choose_candidates(index, index.embeddings.any(axis=1), count=3)
    plans = [
        TokenVokenizer(retriever, index, all_candidates(index)).plan,
        TokenVokenizer(retriever, index, few).plan,
        TokenVokenizer(retriever, index, few, batch_tokens=7).plan,
        TokenVokenizer(retriever, index, few, batch_tokens=7, precision="bfloat16").plan,
    ]
    assert len({str(plan) for plan in plans}) == 4
    assert plans[0]["retriever_sha256"] == retriever.sha256 and plans[0]["device"] == "cpu"


def test_bfloat16_gives_mostly_the_same(world):
    retriever, index, cutter = world
    text = cutter.cut(LINES)
    whole, half = (
        TokenVokenizer(retriever, index, all_candidates(index), precision=precision).label_pieces(text, 0)
        for precision in ("float32", "bfloat16")
    )
    assert (whole.vokens == half.vokens).mean() > 0.8 and not np.array_equal(whole.scores, half.scores)
    with pytest.raises(InputError, match="float16 needs a GPU"):
        TokenVokenizer(retriever, index, all_candidates(index), precision="float16")


def test_an_empty_text_has_no_labels(world):
    retriever, index, cutter = world
    for kind in (TokenVokenizer, SentenceVokenizer):
        labels = kind(retriever, index, all_candidates(index)).label_pieces(cutter.cut(["", ""]), 0)
        assert len(labels.vokens) == len(labels.scores) == 0


def test_no_graph_is_made(world, monkeypatch):
    retriever, index, cutter = world
    seen = []
    embed = retriever.embed_tokens
    monkeypatch.setattr(retriever, "embed_tokens", lambda *args: seen.append(torch.is_grad_enabled()) or embed(*args))
    TokenVokenizer(retriever, index, all_candidates(index)).label_pieces(cutter.cut(LINES), 0)
    assert seen == [False]


def test_vectors_that_are_no_numbers_are_refused(world, monkeypatch):
    retriever, index, cutter = world
    vokenizer = TokenVokenizer(retriever, index, all_candidates(index))
    embed = retriever.embed_tokens

    def overflowing(tokens, padding_mask):
        vectors = embed(tokens, padding_mask).clone()
        vectors[-1, 1] = float("nan")
        return vectors

    monkeypatch.setattr(retriever, "embed_tokens", overflowing)
    with pytest.raises(InputError, match=r"should give vectors of numbers, but gives NaN or infinity\.$"):
        vokenizer.label_pieces(cutter.cut(LINES), 0)
    half = TokenVokenizer(retriever, index, all_candidates(index), precision="bfloat16")
    with pytest.raises(InputError, match=r"NaN or infinity in bfloat16\. Take float32"):
        half.label_pieces(cutter.cut(LINES), 0)


def test_the_first_window_of_a_long_sentence_decides(world):
    retriever, index, cutter = world
    line = LINES[3]  # of three windows
    text = cutter.cut([line])
    assert text.counts == {"empty": 0, "sentences": 1, "windowed": 1, "unknown": 0} and len(text.sizes) == 3
    labels = SentenceVokenizer(retriever, index, all_candidates(index)).label_pieces(text, 0)
    words = line.split()
    first = retriever.encode_tokens(retriever.tokenizer.encode([" ".join(words[: text.sizes[0]])])[0])[0].numpy()
    last = retriever.encode_tokens(retriever.tokenizer.encode([" ".join(words[-text.sizes[-1] :])])[0])[0].numpy()
    best = [(index.embeddings[all_candidates(index).rows] @ vector).max() for vector in (first, last)]
    assert abs(best[0] - best[1]) > 1e-3 and np.allclose(labels.scores, best[0], atol=1e-5)


def test_vokens_are_the_same_however_many_are_searched_at_a_time(world, monkeypatch):
    retriever, index, cutter = world
    text = cutter.cut(LINES)
    vokenizer = TokenVokenizer(retriever, index, all_candidates(index), batch_tokens=12)
    expected = vokenizer.label_pieces(text, 0)
    monkeypatch.setitem(module._SEARCHED, "cpu", 9)
    found = vokenizer.label_pieces(text, 0)
    assert found.vokens.tolist() == expected.vokens.tolist() and np.allclose(found.scores, expected.scores, atol=1e-6)


def test_embeddings_that_are_no_numbers_are_refused(world, tmp_path):
    retriever, index, _ = world
    shutil.copytree(index.folder, tmp_path / "index")
    embeddings = np.load(tmp_path / "index/embeddings.npy")
    embeddings[5, 0] = np.nan
    np.save(tmp_path / "index/embeddings.npy", embeddings)
    with pytest.raises(InputError, match=r"embeddings\.npy should hold unit vectors, but has NaN or infinity"):
        TokenVokenizer(retriever, Index(tmp_path / "index"), all_candidates(index))


def test_a_tokenizer_without_opening_piece_nor_padding_is_read(tmp_path):
    """Where it has no such piece, padding is still a number that the encoder knows."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    bert = make_bert(tmp_path / "matcher-bert", WORDS)
    make_tokenizer(tmp_path / "gpt2", "gpt2")
    for path in bert.glob("*token*"):
        path.unlink()
    for path in (tmp_path / "gpt2").iterdir():
        shutil.copy(path, bert / path.name)
    size = len(AutoTokenizer.from_pretrained(bert))
    config = BertConfig.from_pretrained(bert)
    BertModel(BertConfig(**{**config.to_dict(), "vocab_size": size})).save_pretrained(bert)
    retriever = make_token_matcher(tmp_path / "matcher", image_features=None)
    store = write_store(tmp_path / "store", np.random.default_rng(0).normal(size=(9, 1, 6)))
    build_index(retriever, FeatureStore(store), tmp_path / "index")
    index = Index(tmp_path / "index")
    cutter = Cutter(str(retriever.folder / "text_encoder"), window=10)
    assert min(cutter.bridge.tokenizer_ids) == -1
    text = cutter.cut(["A dog runs.", "Two birds sit on the roof", "a"])
    alone, together = (
        TokenVokenizer(retriever, index, all_candidates(index), size).label_pieces(text, 0) for size in (1, 1000)
    )
    assert alone.vokens.tolist() == together.vokens.tolist() and np.isfinite(together.scores).all()
