"""Images of what is typed: found by any finder, printed, and given to the model with the right sentence."""

import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_image_ids, write_store
from masked_text import SIZES, dictionary, text_dataset
from small_retriever import WORDS, make_retriever

from visual_grounding.data.interactive_images import InteractiveImages, finder_words
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_names import ImageNames
from visual_grounding.retrieval.index import Index, build_index
from visual_grounding.retrieval.retriever import Retriever


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 20 images, a retriever with its index, another one, captions, and a store of other images."""
    folder = tmp_path_factory.mktemp("world")
    features = np.random.default_rng(0).normal(size=(20, 1, 6))
    write_store(folder / "store", features)
    write_store(folder / "elsewhere", features, [f"elsewhere{row}" for row in range(20)])
    build_index(make_retriever(folder / "retriever"), FeatureStore(folder / "store"), folder / "index")
    make_retriever(folder / "other", 1)
    (folder / "captions.tsv").write_text(
        "".join(f"image{row}.jpg\t{WORDS[row]} {WORDS[row // 4]}\n" for row in range(20))
    )
    write_image_ids(folder / "ids", np.zeros((3, 1)), FeatureStore(folder / "store").keys_sha256)
    return folder


def flags(world: Path, **given: object) -> Namespace:
    """The flags of a task: those that are given, `{}` in them the folder of the world."""
    values = {name: value.format(world) if isinstance(value, str) else value for name, value in given.items()}
    left_out = dict.fromkeys(["retriever", "image_index", "image_finder", "image_ids"])
    defaults = {"image_features": f"{world}/store", "image_order": "congruent", "images_per_sentence": 0}
    return Namespace(**{**left_out, **defaults, **values})


def open_images(world: Path, **given: object) -> InteractiveImages:
    cfg = flags(world, **given)
    return InteractiveImages(
        finder_words(cfg), FeatureStore(cfg.image_features), cfg.images_per_sentence, bool(cfg.retriever)
    )


DENSE = {"retriever": "{}/retriever", "image_index": "{}/index"}
KEYWORD = {"image_finder": "keyword --captions {0}/captions.tsv --image-features {0}/store -n 3"}


def type_lines(images: InteractiveImages, lines: list[str], dataset: object = None) -> object:
    """As fairseq-interactive does with the lines of a buffer."""
    tokens = [torch.tensor([4, 2])] * len(lines)
    images.remember(lines, tokens)
    return images.add(dataset or text_dataset(), tokens, dictionary())


@pytest.mark.parametrize("count", [0, 2])
def test_retriever_and_index_find_the_nearest_images(world, count):
    images = open_images(world, **DENSE, images_per_sentence=count)
    ids, scores = images.find(["w1 w2", "", "w7"])
    embeddings = torch.from_numpy(np.array(images.finder.collection.embeddings))
    best = (Retriever.load(world / "retriever").encode_text(["w1 w2", "w7"]) @ embeddings.T).topk(count or 8)
    assert ids[[0, 2]].tolist() == best.indices.tolist() and (ids[1] == -1).all() and not scores[1].any()
    np.testing.assert_allclose(scores[[0, 2]], best.values, atol=1e-6)


@pytest.mark.parametrize("count", [3, 11])
def test_as_many_images_are_found_as_the_checkpoint_had_in_training(world, caplog, count):
    images = open_images(world, **DENSE)
    for _ in range(2):
        images.follow([count])
    ids, _ = images.find(["w1 w2"])
    assert ids.tolist() == open_images(world, **DENSE, images_per_sentence=count).find(["w1 w2"])[0].tolist()
    assert ids.shape == (1, count) and images.words[-2:] == ["-n", str(count)] and not caplog.text


@pytest.mark.parametrize(
    ("given", "counts", "said"),
    [
        ({**DENSE, "images_per_sentence": 2}, [3], ["with 3 images a sentence, but for what is typed 2 are found."]),
        ({**DENSE}, [8, 3], ["with 3 images a sentence, but for what is typed 8 are found."]),
        ({**DENSE}, [], []),
        ({**KEYWORD}, [3], []),
        ({**KEYWORD}, [2, 5], ["with 2 images", "Give --images-per-sentence 5, and -n 5 in --image-finder where"]),
    ],
)  # fmt: skip
def test_number_of_images_that_is_given_stays_with_a_warning_where_training_had_another(
    world, caplog, given, counts, said
):
    images = open_images(world, **given)
    before = images.images_per_sentence
    for _ in range(2):
        images.follow(counts)
    assert images.find(["w1 w2"])[0].shape == (1, before)
    messages = [record.getMessage() for record in caplog.records if "trained with" in record.getMessage()]
    assert len(messages) == len(said) and all(part in message for part, message in zip(said, messages))


def test_any_finder_serves_and_the_best_of_its_images_are_taken(world):
    """Image row has the words `row` and `row // 4` as its caption, so w2 finds 8 to 11, and 2 as well."""
    images = open_images(world, **KEYWORD)
    ids, _ = images.find(["w2 w9"])
    assert ids.shape == (1, 3) and ids[0, 0] == 9 and set(ids[0, 1:]) <= {2, 8, 10, 11}
    assert open_images(world, **KEYWORD, images_per_sentence=2).find(["w2 w9"])[0].tolist() == ids[:, :2].tolist()


def test_naming_images_after_two_lines_of_the_key_list_were_swapped_is_refused(world, tmp_path):
    """Single lines are read, so that only the digest tells: of an index, and of the store that interactive names."""
    message = r"keys\.txt was changed after its artefact was made: its sha256 is .* no longer belong to their images"
    for name in ("index", "store"):
        folder = Path(shutil.copytree(world / name, tmp_path / name))
        collection = Index(folder) if name == "index" else FeatureStore(folder)
        assert ImageNames(collection).describe(np.array([2, -1]), np.zeros(2)) == ["image2.jpg:0.0000"]
        keys = (folder / "keys.txt").read_text().splitlines()
        keys[2], keys[7] = keys[7], keys[2]
        (folder / "keys.txt").write_text("".join(f"{key}\n" for key in keys))
        with pytest.raises(InputError, match=message):
            ImageNames(collection)
    with pytest.raises(InputError, match=message):
        open_images(world, **DENSE, image_features=str(tmp_path / "store"))


def test_lines_are_numbered_through_and_printed_with_their_images(world, capsys):
    images = open_images(world, **KEYWORD)
    type_lines(images, ["w2 w9", "nothing known"])
    type_lines(images, ["", "w19"])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in lines] == ["I-0", "I-1", "I-2", "I-3"]
    assert (
        lines[0][1] == "image9.jpg:2.0000"
        and lines[1][1:] == lines[2][1:] == []
        and lines[3][1:] == ["image19.jpg:1.0000"]
    )


def test_finder_reads_what_was_typed_with_its_pieces_joined(world, capsys, caplog):
    images = open_images(world, **KEYWORD)
    type_lines(images, ["w1@@ 9 w9@@ 9"])
    type_lines(images, ["w@@ 19"])
    assert capsys.readouterr().out.splitlines() == ["I-0\timage19.jpg:1.0000", "I-1\timage19.jpg:1.0000"]
    assert caplog.text.count("what is typed holds subword pieces; they are joined to find images") == 1


def test_what_the_finder_has_to_say_is_said_once_of_a_kind(world, caplog):
    images = open_images(world, **DENSE)
    for line in ("ein Hund", "eine Katze schläft", f"{WORDS[0]} {WORDS[1]}", "", ""):
        type_lines(images, [line])
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("2 of 2 words (100.0 %) aren't known to the retriever.")
    assert said[1].startswith("1 of 1 sentences (100.0 %) have no word that the retriever knows")
    assert said[2:] == [
        "1 of 1 sentences (100.0 %) are empty, or hold nothing that the retriever reads; they have no image."
    ]


def test_tokens_without_lines_get_the_images_of_their_words_and_print_nothing(world, capsys):
    """fairseq's hub interface gives tokens alone, and keeps the whole batch."""
    words = dictionary()
    for word in ("w19", "w2"):
        words.add_symbol(word)
    tokens = [words.encode_line(line, add_if_not_exist=False).long() for line in ("w19", "a w2")]
    images = open_images(world, **KEYWORD)
    dataset = images.add(text_dataset(), tokens, words)
    assert capsys.readouterr().out == ""
    ids, _ = images.find(["w19", "a w2"])
    batch = dataset.collater([dataset[0], dataset[1]])
    expected = images.store.gather(ids)[0][batch["id"].numpy()]
    np.testing.assert_array_equal(batch["net_input"]["visual"]["features"].numpy(), expected)


class Seeing(torch.nn.Module):
    def forward(self, src_tokens, visual=None):
        return None


class Blind(torch.nn.Module):
    def forward(self, src_tokens):
        return None


def test_images_are_put_back_into_each_batch_that_lost_them(world):
    images = open_images(world, **KEYWORD)
    model = SimpleNamespace(encoder=Seeing())
    assert images.put_back({"net_input": {}}, [model]) == {"net_input": {}}  # nothing was typed
    lines = [f"w{number}" for number in range(len(SIZES))]
    dataset = type_lines(images, lines)
    ids, _ = images.find(lines)
    batches = [dataset.collater([dataset[place] for place in places]) for places in ((4, 0, 3), (1, 2))]
    for batch in batches:
        lost = {"net_input": {"src_tokens": batch["net_input"]["src_tokens"].clone()}}
        whole = images.put_back(lost, [model])["net_input"]
        np.testing.assert_array_equal(whole["visual"]["features"], images.store.gather(ids[batch["id"]])[0])
        assert "visual" not in lost["net_input"]
        assert images.put_back(batch, [model]) is batch
    type_lines(images, lines, dataset.dataset).collater([dataset[0]])
    with pytest.raises(RuntimeError, match="in the order of their collation"):
        images.put_back({"net_input": {"src_tokens": torch.zeros(1, 1)}}, [model])


def test_model_that_takes_no_images_is_refused(world):
    images = open_images(world, **KEYWORD)
    type_lines(images, ["w1"])
    models = [SimpleNamespace(encoder=Seeing()), SimpleNamespace(encoder=Blind())]
    with pytest.raises(InputError, match=r"but 1 of 2 in --path take text alone \(SimpleNamespace\)"):
        images.put_back({"net_input": {"src_tokens": torch.zeros(1, 1)}}, models)


def test_without_flags_there_is_nothing_to_find_with(world):
    assert finder_words(flags(world)) == [] == finder_words(flags(world, image_ids="{}/ids", image_order="blank"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**DENSE, "retriever": "{}/other"}, "was made by another retriever than .*other"),
        (
            {**DENSE, "image_features": "{}/elsewhere"},
            "images are found in .*index, but feature store .*elsewhere was made from a different collection: keys ",
        ),
        ({**KEYWORD, "image_features": "{}/elsewhere"}, "found in .*store, but feature store .*elsewhere was made"),
        (
            {**DENSE, "image_ids": "{}/ids"},
            r"--retriever and --image-ids exclude each other, but both are given \(.*retriever, .*ids\)",
        ),
        ({**KEYWORD, "image_ids": "{}/ids"}, r"--image-finder and --image-ids exclude each other.*\(keyword .*ids\)"),
        ({**KEYWORD, **DENSE}, "--image-finder and --retriever and --image-index exclude each other"),
        ({**KEYWORD, "image_index": "{}/index"}, "--image-finder and --image-index exclude each other"),
        ({"retriever": "r"}, "--retriever, --image-index, --image-features belong .* but --image-index isn't given"),
        ({"image_index": "i"}, "--retriever, --image-index, --image-features belong .* but --retriever isn't given"),
        ({**KEYWORD, "image_features": None}, "--image-finder, --image-features belong .*--image-features isn't given"),
        ({**DENSE, "image_order": "blank"}, "--image-order should be congruent with --retriever, but is blank"),
        ({**KEYWORD, "image_order": "shuffled"}, "--image-order should be congruent with --image-finder, but is shuf"),
        ({**DENSE, "images_per_sentence": -1}, "--images-per-sentence should be at least 1, but is -1"),
        ({**KEYWORD, "images_per_sentence": 9}, "is 9, but --image-finder finds 3 images a sentence.* -n 9'"),
        ({"image_finder": "paired --image-features {0}/store"}, "find images for text, but paired reads image_keys"),
        ({"image_finder": "nearest --captions c"}, "one of dense, keyword, object, paired, scene.*is 'nearest'"),
        ({"image_finder": "keyword --captions 'c"}, "but .* has no closing quotation"),
        ({"image_finder": "keyword -n 3"}, "finder 'keyword': the following arguments are required: --captions, --im"),
    ],
)  # fmt: skip
def test_flags_that_do_not_fit_are_refused(world, given, message):
    with pytest.raises(InputError, match=message):
        open_images(world, **given)


MANY = {"image_finder": KEYWORD["image_finder"].replace("-n 3", "-n 1000000")}


@pytest.mark.parametrize("given", [{**DENSE, "images_per_sentence": 1_000_000}, MANY])
def test_more_images_than_there_are_are_refused_before_memory_is_asked_for(world, given):
    with pytest.raises(
        InputError, match=r"per sentence should be at most 1024, but are 1000000: the collection has 20"
    ):
        open_images(world, **given)
