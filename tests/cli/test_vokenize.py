"""`vokenize` as it is typed: all methods, what it prints, what it refuses."""

import re

import numpy as np
import pytest
from conftest import write_store
from small_matcher import make_bert, make_token_matcher
from small_tokenizers import make_tokenizer

from visual_grounding.cli.main import main
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.token_matcher import TokenMatcherRetriever
from visual_grounding.vokenization import stream
from visual_grounding.vokenization.vokens import Vokens

WORDS = [*"abcdefghijklmnopqrstuvwxyz", "!"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    features = np.random.default_rng(0).normal(size=(20, 1, 6)).astype(np.float16)
    store = write_store(folder / "store", features)
    make_bert(folder / "matcher-bert", WORDS)
    retriever = make_token_matcher(folder / "matcher", image_features=None)
    build_index(retriever, FeatureStore(store), folder / "index")
    make_tokenizer(folder / "tokenizer", "bytes")
    (folder / "text").write_text("a b c! D e f\n\nx y z a b c d e f g h i j k l m n\n")
    keys = list(FeatureStore(store).keys())
    (folder / "captions.tsv").write_text("".join(f"{key}\ta b {number}\n" for number, key in enumerate(keys)))
    (folder / "list").write_text(f"{keys[3]}\n{keys[9]}\n")
    return folder


def vokenize(folder, out, *flags, text="text"):
    return main(["vokenize", "--text", str(folder / text), "--out", str(out), *map(str, flags)])


def made(folder, out, *flags, **given):
    assert vokenize(folder, out, *flags, **given) == 0
    return Vokens(out)


def of_matcher(folder):
    return ["--retriever", folder / "matcher", "--index", folder / "index", "--device", "cpu"]


def of_images(folder):
    return ["--tokenizer", folder / "tokenizer", "--image-features", folder / "store"]


def test_vokenize_says_what_it_made_and_what_comes_next(world, tmp_path, capsys):
    assert vokenize(world, tmp_path / "v", *of_matcher(world), "--scores", "--max-pieces", 8) == 0
    said = capsys.readouterr()
    found = Vokens(tmp_path / "v")
    assert (
        f"{tmp_path / 'v'}: 3 lines, {found.tokens} pieces, 20 vokens\nvokenize|method:matching|retriever:" in said.out
    )
    assert f"fairseq-preprocess --only-source --srcdict {tmp_path}/v/dict.txt --trainpref" in said.out
    assert "1 of 3 lines (33.3 %) are empty; they have no vokens." in said.err
    assert "1 of 3 sentences (33.3 %) are long, and were read in parts." in said.err
    assert found.scores is not None and found.label == "token"
    assert vokenize(world, tmp_path / "v", "--check") == 0
    assert "sound. 3 lines" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("sentence", of_matcher),
        ("random", of_images),
        ("term-frequency", lambda folder: [*of_images(folder), "--captions", folder / "captions.tsv"]),
    ],
)
def test_vokenize_by_any_method(world, tmp_path, capsys, method, flags):
    assert vokenize(world, tmp_path / "v", "--method", method, *flags(world)) == 0
    found = Vokens(tmp_path / "v")
    assert f"method:{method}" in found.signature and found.size == 20
    assert found.label == ("sentence" if method == "sentence" else "token")


def test_vokenize_leaves_absent_images_out(world, tmp_path):
    features = np.random.default_rng(0).normal(size=(20, 1, 6)).astype(np.float16)
    features[7] = 0
    store = write_store(tmp_path / "store", features)
    flags = ["--tokenizer", world / "tokenizer", "--image-features", store, "--seed", 3]
    assert vokenize(world, tmp_path / "v", "--method", "random", *flags) == 0
    found = Vokens(tmp_path / "v")
    assert found.size == 19 and list(FeatureStore(store).keys())[7] not in set(found.keys())


def test_vokenize_with_chosen_candidates(world, tmp_path):
    assert vokenize(world, tmp_path / "list", *of_matcher(world), "--candidate-list", world / "list") == 0
    assert list(Vokens(tmp_path / "list").keys()) == (world / "list").read_text().split()
    keys = list(FeatureStore(world / "store").keys())
    first, *drawn = (
        list(made(world, tmp_path / f"n{number}", *of_matcher(world), "--candidates", 4, *flags).keys())
        for number, flags in enumerate(([], ["--candidate-seed", 2], ["--candidate-seed", 3]))
    )
    assert first == keys[:4] and drawn[0] != drawn[1]
    assert all(len(set(each)) == 4 and each != first and set(each) <= set(keys) for each in drawn)


def test_seed_and_temperature_decide_what_is_drawn(world, tmp_path):
    def drawn(name, *flags):
        found = made(world, tmp_path / name, *of_images(world), *flags, text="letters")
        return list(found.vokens), found.signature

    (world / "letters").write_text("a b c d e f g\n" * 20)
    random = [drawn(f"r{seed}", "--method", "random", "--seed", seed) for seed in (1, 2)]
    assert drawn("r", "--method", "random") == random[0] and random[0][0] != random[1][0]
    assert "seed:2" in random[1][1]
    flags = ["--method", "term-frequency", "--captions", world / "captions.tsv"]
    default, same, other, hot = (
        drawn(f"t{number}", *flags, *more)
        for number, more in enumerate(([], ["--seed", 1, "--temperature", 0.01], ["--seed", 2], ["--temperature", 1]))
    )
    assert default == same and default[0] != other[0] != hot[0] != default[0]
    assert "seed:2" in other[1] and "temperature:1.0" in hot[1]


def test_shards_are_as_large_as_asked(world, tmp_path):
    """What is drawn at random is drawn shard by shard."""
    random = ["--method", "random", *of_images(world)]
    whole, ones, again = (
        made(world, tmp_path / f"v{number}", *random, *more)
        for number, more in enumerate(([], ["--shard-size", 1], ["--shard-size", 8192]))
    )
    assert list(whole.vokens) == list(again.vokens) != list(ones.vokens)
    assert (whole.folder / "tokens.txt").read_bytes() == (ones.folder / "tokens.txt").read_bytes()


def test_the_language_decides_where_sentences_end(world, tmp_path):
    (world / "german").write_text("a b z.B. C d usw. e bzw. F g.\n")
    random = ["--method", "random", *of_images(world)]
    counts = [
        made(world, tmp_path / language, *random, "--language", language, text="german").counts["sentences"]
        for language in ("en", "de")
    ]
    assert counts[0] > counts[1] == 1


def test_the_encoder_computes_as_precisely_and_in_such_batches_as_asked(world, tmp_path, monkeypatch):
    sizes = []
    embedded = TokenMatcherRetriever.embed_tokens
    monkeypatch.setattr(
        TokenMatcherRetriever,
        "embed_tokens",
        lambda self, tokens, mask: sizes.append(len(tokens)) or embedded(self, tokens, mask),
    )
    exact, coarse = (
        made(world, tmp_path / precision, *of_matcher(world), "--scores", "--precision", precision)
        for precision in ("float32", "bfloat16")
    )
    assert "precision:float32" in exact.signature and "precision:bfloat16" in coarse.signature
    assert list(exact.scores) != list(coarse.scores)
    np.testing.assert_allclose(exact.scores, coarse.scores, atol=0.05)
    assert max(sizes) > 1
    sizes.clear()
    found = made(world, tmp_path / "ones", *of_matcher(world), "--batch-tokens", 1)
    assert set(sizes) == {1} and list(found.vokens) == list(exact.vokens)


@pytest.mark.parametrize(("flags", "expected"), [([], 0), (["--workers", 0], 0), (["--workers", 3], 3)])
def test_as_many_processes_cut_as_asked(world, tmp_path, monkeypatch, flags, expected):
    asked = []
    executor = stream._executor

    def in_a_thread(cutter, workers):
        asked.append(workers)
        monkeypatch.setattr(stream, "_cutter", cutter, raising=False)  # as a process that cuts has it
        return executor(cutter, 0)

    monkeypatch.setattr(stream, "_executor", in_a_thread)
    for name, method in (("m", of_matcher(world)), ("r", ["--method", "random", *of_images(world)])):
        made(world, tmp_path / name, *method, *flags)
    assert asked == [expected, expected]


def test_vokenize_only_estimates_in_a_dry_run(world, tmp_path, capsys):
    assert vokenize(world, tmp_path / "v", *of_matcher(world), "--dry-run") == 0
    assert "3 lines, 45 letters, about 24 pieces" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (lambda folder: [], "--method matching also needs --retriever and --index"),
        (lambda folder: ["--method", "random"], "--method random also needs --tokenizer and --image-features"),
        (
            lambda folder: [*of_matcher(folder), "--seed", 1, "--captions", folder / "captions.tsv"],
            "--method matching doesn't read --captions and --seed. Leave it out.",
        ),
        (
            lambda folder: ["--method", "random", *of_images(folder), "--scores"],
            "--method random doesn't read --scores",
        ),
        (lambda folder: [*of_matcher(folder), "--seed", 0], "--method matching doesn't read --seed. Leave it out."),
        (
            lambda folder: ["--check", "--candidates", 0, "--workers", 0],
            "--check doesn't read --candidates and --workers. Leave it out.",
        ),
        (lambda folder: [*of_matcher(folder), "--check", "--dry-run"], "--check and --dry-run exclude each other"),
        (
            lambda folder: [*of_matcher(folder)[:4], "--check", "--max-pieces", 3],
            "--check doesn't read --index and --max-pieces and --retriever. Leave it out.",
        ),
        (
            lambda folder: ["--check", "--method", "random", "--language", "de"],
            "--check doesn't read --language and --method. Leave it out.",
        ),
        (lambda folder: [*of_matcher(folder), "--candidates", 21], "1 to 20 candidates, .* but 21 were asked for"),
        (lambda folder: [*of_matcher(folder), "--max-pieces", 15], "at most the 14 pieces that .* but has 15"),
        (
            lambda folder: [*of_matcher(folder), "--shard-size", 0],
            r"shard size should be at least 1, but is 0\. See --shard-size",
        ),
        (lambda folder: [*of_matcher(folder), "--batch-tokens", 0], "batch tokens should be at least 1, but is 0"),
        (lambda folder: [*of_matcher(folder), "--workers", -1], "workers should be 0 or more, but is -1"),
        (
            lambda folder: ["--method", "random", *of_images(folder), "--seed", -1],
            "seed should be 0 or more, but is -1",
        ),
    ],
)
def test_vokenize_refuses_what_does_not_belong_together(world, tmp_path, capsys, flags, message):
    assert vokenize(world, tmp_path / "v", *flags(world)) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_vokenize_refuses_another_kind_of_retriever(world, tmp_path, capsys):
    from small_retriever import make_retriever

    make_retriever(tmp_path / "other")
    assert vokenize(world, tmp_path / "v", "--retriever", tmp_path / "other", "--index", world / "index") == 2
    assert "a retriever that --arch token_image_matching trained" in capsys.readouterr().err
