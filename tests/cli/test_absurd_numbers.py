"""Every numeric flag of every verb, given numbers that nobody means: it works, or one line says what is wrong.

Flags are taken from the verbs themselves, so a new one is covered as soon as it is there; a new verb with numeric flags
needs a line in `commands`.
"""

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from analysis.test_contrastive import printed
from cli.test_evaluate_contrastive import CORRECT, INCORRECT
from conftest import write_image_ids, write_store
from damage import watched
from PIL import Image
from small_examples import make_world as make_examples
from small_grounded import make_world as make_lines
from small_matcher import make_bert, make_token_matcher
from small_retriever import make_retriever
from small_tokenizers import make_tokenizer
from small_trained import train
from small_vokens import write_vokens
from small_watched import watched as watched_model
from small_word_vectors import write_vectors

from tests.features.imports import published
from tests.features.tiny_onnx import write_detector
from visual_grounding.cli.main import VERBS, main, parser_of
from visual_grounding.features.backbones.preprocessing import Preprocessing
from visual_grounding.features.store import FEATURE_STORE, FeatureStore
from visual_grounding.retrieval.finder import METHODS
from visual_grounding.retrieval.index import build_index
from visual_grounding.storage.artefact import META, read_meta, sha256_of_file, write_json

ABSURD = ["0", "-1", "7", str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63), str(10**30), f"-{10**30}", "9" * 5000]
NO_NUMBERS = ["nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "0.5", "x", ""]
WORDS = [*"abcdefghijklmnopqrstuvwxyz", "!"]
KEYS = [f"{number}.png" for number in range(300)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little of everything that the verbs read."""
    folder = tmp_path_factory.mktemp("world")
    columns = {
        "boxes": np.tile([0, 0.25, 0.5, 1], (300, 1, 1)),
        "labels": np.ones((300, 1)),
        "scores": np.ones((300, 1)),
    }
    write_store(folder / "store", np.random.default_rng(0).normal(size=(300, 1, 6)), KEYS, columns)
    retriever = make_retriever(folder / "retriever")
    build_index(retriever, FeatureStore(folder / "store"), folder / "index", kind="ivf", lists=4)
    make_bert(folder / "matcher-bert", WORDS)
    matcher = make_token_matcher(folder / "matcher", image_features=None)
    build_index(matcher, FeatureStore(folder / "store"), folder / "exact")
    tokenizer = make_tokenizer(folder / "tokenizer", "bytes")
    lines = ["a b c!", "d e f", "w1 w2"]
    (folder / "text").write_text("".join(f"{line}\n" for line in lines))
    (folder / "captions.tsv").write_text("".join(f"{key}\ta b c dog\n" for key in KEYS))
    (folder / "dev.tsv").write_text("0.png\ta cat\n")
    (folder / "nouns.tsv").write_text("".join(f"dog\t\t{key}\nb\t\t{key}\n" for key in KEYS))
    (folder / "keys").write_text("0.png\n1.png\n2.png\n")
    write_vectors(folder / "vectors.vec", {"dog": [1.0, 0.5], "a": [0.5, 1.0], "b": [1.0, -1.0]})
    write_image_ids(folder / "ids", np.zeros((3, 2), np.int32), sha256_of_file(folder / "store/keys.txt"))
    write_vokens(folder / "vokens", lines, tokenizer)
    (folder / "photos").mkdir()
    for number in range(3):
        for ending in ("png", "jpg"):
            Image.new("RGB", (64, 48), "grey").save(folder / f"photos/{number}.{ending}")
    write_store(folder / "grid", np.ones((3, 4, 6)), KEYS[:3])
    described = read_meta(folder / "grid", FEATURE_STORE)
    described["plan"]["preprocessing"] = Preprocessing(64, 48).describe()
    write_json(folder / "grid" / META, described)
    write_detector(folder / "d.onnx")
    (folder / "labels").write_text("".join(f"label {number}\n" for number in range(9)))
    published.write_vtlm(folder / "vtlm")
    (folder / "names").write_text("".join(f"{name}\n" for name in published.LABELS))
    (folder / "run").mkdir()
    for epoch in (1, 2):
        torch.save({"args": None, "model": {"w": torch.ones(2)}}, folder / f"run/checkpoint{epoch}.pt")
    for side, targets in (("correct", CORRECT), ("incorrect", INCORRECT)):
        examples = [("bank", target, [-1.0] * 3) for target in targets]
        (folder / side).write_text(printed(*examples))
    (folder / "correct.fr").write_text("".join(f"{target}\n" for target in CORRECT))
    (folder / "other").write_text("a b c d!\nd e\nw1 w3\n")
    rows = [
        {"sentence1": f"A dog {label}{number}.", "sentence2": "A cat.", "gold_label": label}
        for number in range(20)
        for label in "ab"
    ]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, first, second, label in (
        ("sick", "sentence_A", "sentence_B", "entailment_label"),
        ("rte", "sentence1", "sentence2", "label"),
        ("joci", "CONTEXT", "HYPOTHESIS", "LABEL"),
        ("pdtb", "arg1", "arg2", "sense"),
    ):
        (folder / f"{name}.tsv").write_text(
            f"{first}\t{second}\t{label}\n" + "".join(f"a {n}\tc d\t{1 + n % 2}\n" for n in range(40))
        )
    (folder / "vua.csv").write_text("sentence,verb_idx,label\n" + "".join(f"a b {n},1,{n % 2}\n" for n in range(40)))
    (folder / "conll").write_text("".join(f"a{n} O\nb B-PER\n\n" for n in range(40)))
    return folder


def commands(world: Path) -> dict[str, list[object]]:
    """A sound command of each verb with numeric flags, without --out; see `of_trained` for trained models."""
    examples = {
        name: ["--all", world / file, "--tokenizer", world / "matcher-bert"]
        for name, file in {
            **{"snli": "t.jsonl", "sick": "sick.tsv", "rte": "rte.tsv", "glue": "rte.tsv", "joci": "joci.tsv"},
            **{"vua": "vua.csv", "conll": "conll", "pdtb": "pdtb.tsv"},
        }.items()
    }
    cpu = ["--device", "cpu"]
    store = ["--image-features", world / "store"]
    text = ["--text", world / "text"]
    captions = ["--captions", world / "captions.tsv"]
    vectors = ["--word-vectors", world / "vectors.vec"]
    detector = [
        "--detector",
        f"onnx:{world / 'd.onnx'}",
        "--label-names",
        world / "labels",
        "--feature-maps",
        "map_fine",
    ]
    photos = ["--images", world / "photos"]
    return {
        "extract": [*photos, "--backbone", "resnet18", "--weights", "none", "--image-size", 32, *cpu],
        "extract ": [*photos, *detector, *cpu],
        "import": ["--arrays", world / "vtlm", "--regions", 4, "--label-names", world / "names"],
        "prepare captions": ["--train", world / "captions.tsv", "--valid", world / "dev.tsv"],
        "prepare pieces": [*text, "--tokenizer", world / "tokenizer"],
        **{f"prepare {name}": flags for name, flags in examples.items()},
        "index": ["--retriever", world / "retriever", *store, *cpu, "--kind", "pq", "--lists", 2, "--code-bytes", 4],
        "retrieve dense": [
            "--method",
            "dense",
            "--retriever",
            world / "retriever",
            "--index",
            world / "index",
            *text,
            *cpu,
        ],
        "retrieve keyword": ["--method", "keyword", *captions, *store, *text],
        "retrieve scene": ["--method", "scene", *captions, *vectors, *store, *text],
        "retrieve object": ["--method", "object", "--nouns", world / "nouns.tsv", *vectors, *store, *text],
        "retrieve paired": ["--method", "paired", *store, "--keys", world / "keys"],
        "vokenize": [*text, "--retriever", world / "matcher", "--index", world / "exact", *cpu],
        "vokenize ": [*text, "--method", "random", "--tokenizer", world / "tokenizer", *store],
        "average": ["--checkpoint-dir", world / "run", "--last", 2],
        "evaluate": ["--hypothesis", world / "text", "--twin", world / "other", "--reference", world / "text"],
        "evaluate contrastive": [
            "--correct",
            world / "correct",
            "--incorrect",
            world / "incorrect",
            "--reference",
            world / "correct.fr",
        ],
        "evaluate perplexity": [],
        "evaluate predictions": [],
        "stats": ["--text", f"c={world / 'text'}", "--captions", "c"],
        "report": [*text, "--image-ids", world / "ids", *store, *photos, "--draw-regions"],
        "report heatmap": [
            "--retriever",
            world / "retriever",
            "--image-features",
            world / "grid",
            *photos,
            "--pair",
            "0.png",
            "w1",
            *cpu,
        ],
        "report regions": [*store, *photos],
        "report vokens": ["--vokens", world / "vokens", *photos],
        "probe attention-mass": [],
        "probe entity-masking": [],
        "probe last-word": [],
        "doctor": [*store, *text],
    }


def numeric_flags(verb: str, words: list[str]) -> dict[str, Any]:
    """Flag -> its action, of those that read a number, hidden ones included."""
    actions = parser_of(verb, words)._actions
    return {each.option_strings[-1]: each for each in actions if each.option_strings and each.type in (int, float)}


def verb_of(name: str) -> str:
    return "retrieve" if name.startswith("retrieve") else name.strip()


def test_every_verb_with_a_numeric_flag_has_a_command(world: Path) -> None:
    covered = {verb_of(name) for name in commands(world)}
    methods = [name.partition(" ")[2] for name in commands(world) if name.startswith("retrieve")]
    assert [verb for verb in VERBS if verb not in covered and verb != "prepare" and numeric_flags(verb, [])] == []
    assert sorted(methods) == sorted(METHODS)


def run(verb: str, words: list[object]) -> tuple[int, str]:
    """Exit status and what was said on stderr."""
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            status = main([*verb.split(), *map(str, words)])
        except SystemExit as end:  # argparse's own
            status = int(end.code or 0)
    return status, said.getvalue()


def tries(flag: str, action: Any, words: list[object]) -> Iterator[list[object]]:
    values = ABSURD if action.type is int else [*ABSURD, *NO_NUMBERS]
    several = action.nargs if isinstance(action.nargs, int) else 1
    for value in values:
        given = [word for word in words]
        if flag in given:  # in its place
            place = given.index(flag)
            del given[place : place + 1 + several]
        yield [*given, *([flag, *[value] * several] if not value.startswith("-") else [f"{flag}={value}"])]


NAMES = list(commands(Path("/")))
TRAINED = (
    "probe attention-mass",
    "probe entity-masking",
    "probe last-word",
    "evaluate perplexity",
    "evaluate predictions",
)


def of_trained(name: str, request: pytest.FixtureRequest) -> list[object]:
    """The command of a probe or an evaluation, of a model that was trained a little."""
    if name == "probe last-word":
        return ["--checkpoint", request.getfixturevalue("pretrained_stream"), "--device", "cpu", "--split", "valid"]
    orders = ["--device", "cpu", "--image-order", "congruent", "shuffled"]
    new = request.getfixturevalue("tmp_path_factory").mktemp("trained")
    if name.startswith("evaluate "):
        kind = name.partition(" ")[2]
        made = {"perplexity": make_lines, "predictions": make_examples}[kind](new / "world")
        images = ["--image-features", made / "store", "--image-ids", made / "ids", "--max-pieces", 20]
        flags: dict[str, list[object]] = {
            "perplexity": [
                made / "bin", "--task", "grounded_lm", "--arch", "grounded_albert", "--grounded-text-encoder",
                made / "encoder", "--criterion", "grounded_masked_lm",
            ],
            "predictions": [
                made / "pairs", "--task", "grounded_sentence_prediction", "--arch", "visual_aware_bert", "--bert",
                made / "encoder", "--criterion", "grounded_sentence_prediction",
            ],
        }  # fmt: skip
        checkpoint = train(new / "model.pt", *flags[kind], *images)
        return ["--checkpoint", checkpoint, "--split", "valid", *orders]
    if name == "probe attention-mass":
        world = request.getfixturevalue("animals")
        (new / "photos").mkdir()
        for key in (world / "store/keys.txt").read_text().split():
            Image.new("RGB", (60, 40), "grey").save(new / "photos" / key)
        checkpoint = watched_model(world, new / "model.pt")
        return ["--checkpoint", checkpoint, *orders, "--sentence", 4, "--images", new / "photos"]
    folder = request.getfixturevalue("animals")
    lines = len((folder / "text/test.words").read_text().splitlines())
    (folder / "positions").write_text("0\n" * lines)
    words: list[object] = ["--text", folder / "text/test.words", "--reference", folder / "text/test.de"]
    words += ["--checkpoint", folder / "seeing.pt", "--positions", folder / "positions", "--device", "cpu"]
    return [*words, "--bootstrap-samples", 20, "--max-len-b", 12, "--beam", 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_absurd_numbers_work_or_are_refused_in_a_line(
    world: Path, tmp_path: Path, name: str, request: pytest.FixtureRequest, record_property: Any
) -> None:
    words, verb, out = commands(world)[name], verb_of(name), tmp_path / "out"
    if name in TRAINED:
        words = of_trained(name, request)
    to = [] if verb in ("stats", "doctor") else ["--out", out]
    if verb != "doctor":
        status, said = run(verb, [*words, *to])
        assert status == 0, said
    tried = 0
    for flag, action in numeric_flags(verb, list(map(str, words))).items():
        for given in tries(flag, action, words):
            for path in tmp_path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            try:
                with watched(tmp_path, seconds=60):
                    status, said = run(verb, [*given, *to])
            except BaseException as error:
                error.add_note(f"{verb} {flag} {' '.join(map(str, given[-2:]))[:80]}")
                raise
            tried += 1
            where = f"{verb} {' '.join(map(str, given[-3:]))[:200]}: {status}\n{said[-600:]}"
            assert status in ((0, 2) if verb != "doctor" else (0, 1, 2)), where
            assert "Traceback" not in said, where
            if status:
                message = said.strip().splitlines()[-1] if said.strip() else ""
                assert verb == "doctor" or (message.startswith(f"visual-grounding {verb}: ") and len(message) < 1500), (
                    where
                )
                assert [path.name for path in tmp_path.iterdir()] == [], where
    assert tried
    record_property("absurd", (name, tried))
