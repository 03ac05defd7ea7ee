"""Tasks of understanding: which images come with which sentence, what is refused, and scores of a whole split."""

import json
from argparse import Namespace
from collections import Counter

import numpy as np
import pytest
import torch
from fairseq.logging import metrics
from small_examples import forget_digests, make_task, make_world, whole

from visual_grounding.criterions.grounded_sentence_prediction import GroundedSentencePredictionCriterion
from visual_grounding.criterions.grounded_tagging import GroundedTaggingCriterion
from visual_grounding.errors import InputError
from visual_grounding.features.store import FeatureStore
from visual_grounding.probes.predictions import example_texts
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.storage.lines import read_lines, sha256_of_lines
from visual_grounding.tasks.grounded_sentence_prediction import (
    GroundedSentencePredictionConfig,
    GroundedSentencePredictionTask,
)
from visual_grounding.tasks.grounded_tagging import GroundedTaggingConfig, GroundedTaggingTask
from visual_grounding.text.resemblance import places, sketch


@pytest.fixture
def world(tmp_path):
    return make_world(tmp_path)


def ids_of(world, table):
    return np.asarray(ImageIds(world / "ids" / table).ids)


def features(world, ids):
    return torch.from_numpy(FeatureStore(world / "store").gather(ids)[0])


@pytest.mark.parametrize(("side", "tables"), [("first", [""]), ("second", [".second"]), ("both", ["", ".second"])])
def test_images_are_those_of_the_sentence_that_is_asked_for(world, side, tables):
    task = make_task(world, image_sentence=side)
    ids = np.concatenate([ids_of(world, f"valid{table}") for table in tables], axis=1)
    visual = whole(task)["net_input"]["visual"]
    assert torch.equal(visual["features"], features(world, ids))
    moved = make_task(world, image_sentence=side, image_order="shuffled")
    other = whole(moved)["net_input"]["visual"]["features"]
    # All images of an example move together, to another one.
    rows = [[torch.equal(one, all_of) for all_of in visual["features"]] for one in other]
    assert all(any(row) for row in rows) and not torch.equal(other, visual["features"])


def test_a_second_sentence_is_asked_for_where_there_is_one(world):
    with pytest.raises(InputError, match="--image-sentence both is for examples of two sentences, but these have one"):
        make_task(world, "words", image_sentence="both")
    (world / "ids/valid.second/meta.json").unlink()
    task = make_task(world, image_sentence="both")
    with pytest.raises(InputError, match=r"ids/valid\.second should hold image ids"):
        task.load_dataset("valid")


@pytest.mark.parametrize(("side", "heard"), [("first", True), ("second", False), ("both", True)])
def test_tables_of_the_other_sentence_are_told(world, caplog, side, heard):
    """Images that were found for the second sentences stand in the table of the first."""
    path = world / "ids/valid/meta.json"
    forget_digests(world / "pairs")
    for name in ("first", "second"):
        lines = [f"{'zebra crossing' if name == 'first' else 'three men talk'} {n}" for n in range(12)]
        (world / f"pairs/valid.{name}").write_text("".join(f"{line}\n" for line in lines))
    meta = json.loads(path.read_text()) | {"text_sketches": [sketch(lines[place]) for place in places(12)]}
    path.write_text(json.dumps(meta))
    make_task(world, image_sentence=side).load_dataset("valid")
    assert ("were found for another text than" in caplog.text) == heard


@pytest.mark.parametrize(("side", "table"), [("first", "valid"), ("second", "valid.second"), ("both", "valid")])
def test_tables_that_were_made_of_the_other_sentence_are_refused(world, side, table):
    """Premises and hypotheses resemble each other too much for a sample to tell them apart."""
    path = world / "ids" / table / "meta.json"
    own, other = ("second", "first") if table.endswith("second") else ("first", "second")
    meta = json.loads(path.read_text())
    for name, wrong in ((own, False), (other, True)):
        digest = sha256_of_lines(read_lines(world / f"pairs/valid.{name}"))
        path.write_text(json.dumps(meta | {"text_sha256": digest}))
        if not wrong:
            make_task(world, image_sentence=side).load_dataset("valid")
            continue
        with pytest.raises(InputError, match=rf"ids/{table} should be of the other sentence of each example of"):
            make_task(world, image_sentence=side).load_dataset("valid")


def test_a_description_without_one_of_the_digests_is_taken(world):
    path = world / "pairs/meta.json"
    meta = json.loads(path.read_text())
    del meta["splits"]["valid"]["files"]["second"]
    path.write_text(json.dumps(meta))
    make_task(world, image_sentence="both").load_dataset("valid")


def test_examples_that_were_changed_since_are_refused(world):
    (world / "pairs/valid.answers").write_text((world / "pairs/train.answers").read_text())
    make_task(world).load_dataset("train")
    with pytest.raises(InputError, match=r"pairs/valid\.answers should be as visual-grounding prepare wrote it"):
        make_task(world).load_dataset("valid")


def test_a_checkpoint_of_another_tokenizers_pieces_is_refused(world):
    """Of one that cuts otherwise and has the same symbols."""
    task = make_task(world)
    path = world / "pairs/meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_sha256": "0" * 64}))
    with pytest.raises(InputError, match=r"the tokenizer of .*dict\.txt should have the words that the checkpoint was"):
        make_task(world).load_state_dict(task.state_dict())
    with pytest.raises(InputError, match=r"pairs should ask for what .* asks for of the same tokenizer's pieces"):
        task.load_dataset("valid")


@pytest.mark.parametrize(
    ("name", "criterion", "message"),
    [
        (
            "pairs",
            "cross_entropy",
            r"cross_entropy .* can't read the batches of .*: give --criterion grounded_sentence_prediction\.",
        ),
        (
            "pairs",
            "sentence_prediction",
            "sentence_prediction can't read .*: give --criterion grounded_s",
        ),
        ("values", "grounded_tagging", "grounded_tagging can't read the batches of .*: give --criterion grounded_sent"),
        (
            "tags",
            "grounded_sentence_prediction",
            r"grounded_sentence_prediction can't read the batches of .*: give --criterion grounded_tagging\.",
        ),
    ],
)
def test_criterions_are_for_their_answers(world, name, criterion, message):
    with pytest.raises(InputError, match=message):
        make_task(world, name, images=False).build_criterion(
            Namespace(_name=criterion, criterion=criterion, sentence_avg=False)
        )


def test_numbers_are_told_from_the_mean_of_those_to_train_on(world, tmp_path):
    """Only before training: a checkpoint has its own, and a test set alone has none to take."""
    task = make_task(world, "values")
    flags = {"arch": "visual_aware_bert", "_name": "visual_aware_bert", "bert": str(world / "encoder")}
    model = task.build_model(Namespace(**flags))
    answers = [float(line) for line in read_lines(world / "values/train.answers")]
    assert model.head.output.bias.item() == pytest.approx(np.mean(answers)) != 0
    model.head.begin_at(7.0)
    again = task.build_model(Namespace(**flags))
    again.load_state_dict(model.state_dict())
    assert again.head.output.bias.item() == 7
    assert (
        task.build_model(Namespace(**flags), from_checkpoint=True).head.output.bias.item() == 0
    )  # which will be loaded
    meta = json.loads((world / "values/meta.json").read_text())
    meta["splits"].pop("train")
    (world / "values/meta.json").write_text(json.dumps(meta))
    assert make_task(world, "values").build_model(Namespace(**flags)).head.output.bias.item() == 0
    other = make_task(world).build_model(Namespace(**flags))  # classes
    assert other.head.output.bias.tolist() == [0, 0]


def test_architectures_are_those_of_understanding(world):
    with pytest.raises(InputError, match="--arch transformer tells no classes, numbers or tags of text"):
        make_task(world, images=False).build_model(Namespace(arch="transformer", _name="transformer"))


def test_images_that_were_found_for_masked_text_are_told(world, caplog):
    folder = world / "ids/valid"
    meta = json.loads((folder / "meta.json").read_text())
    masked = {"mask_prob": 0.5, "mask_bytes": 1, "symbols_sha256": "0" * 64}
    for dtype, name, shape in (("int32", "pieces", 12), ("uint8", "mask", (12, 1))):
        np.save(folder / f"{name}.npy", np.ones(shape, dtype))
    make_task(world).load_dataset("valid")
    assert "--mask-prob" not in caplog.text
    (folder / "meta.json").write_text(json.dumps(meta | masked))
    make_task(world).load_dataset("valid")
    assert "ids/valid were found for what --mask-prob 0.5 leaves of each line, but here no word" in caplog.text


def test_tables_of_another_text_are_told(world, caplog):
    path = world / "ids/valid/meta.json"
    lines = ["zebra crossing the street"] * 12
    meta = json.loads(path.read_text()) | {"text_sketches": [sketch(lines[place]) for place in places(12)]}
    path.write_text(json.dumps(meta))
    make_task(world).load_dataset("valid")
    assert "were found for another text than" in caplog.text


def test_tables_of_which_a_line_is_missing_are_told(world, caplog):
    path = world / "ids/valid/meta.json"
    lines = (world / "pairs/valid.first").read_text().splitlines()
    for first, said in ((12, False), (8, True)):
        words = [f"{'abcdefghijkl'[n] * 4} {'mnopqrstuvwx'[n] * 4}" for n in range(12)]
        forget_digests(world / "pairs")
        (world / "pairs/valid.first").write_text("".join(f"{word}\n" for word in words))
        found_for = [*words[:first], *words[first + 1 :], *lines[:1]][:12]
        meta = json.loads(path.read_text()) | {"text_sketches": [sketch(found_for[place]) for place in places(12)]}
        path.write_text(json.dumps(meta))
        make_task(world).load_dataset("valid")
        assert (
            "from about line 9 on lines have next to nothing in common with theirs, before it" in caplog.text
        ) == said


def test_sentences_and_predictions_that_lack_lines_are_refused(world):
    forget_digests(world / "pairs")
    meta = json.loads((world / "ids/valid/meta.json").read_text())
    sketches = [sketch(read_lines(world / "pairs/valid.first")[place]) for place in places(12)]
    (world / "ids/valid/meta.json").write_text(json.dumps(meta | {"text_sketches": sketches}))
    path = world / "pairs/valid.first"
    path.write_text("".join(path.read_text().splitlines(True)[:-1]))
    with pytest.raises(InputError, match=r"valid.first should have 12 lines, one for each example, but has 11. Make"):
        make_task(world).load_dataset("valid")
    with pytest.raises(InputError, match=r"valid.first should have 12 lines, one for each example, but has 11. Make"):
        example_texts(world / "pairs", "valid", 2, 12)
    make_task(world, images=False).load_dataset("valid")  # which needs no sentences


def test_tasks_are_for_their_answers(world):
    with pytest.raises(
        InputError, match=r"those in .*pairs ask for classes: train on them with --task grounded_sentence"
    ):
        GroundedTaggingTask.setup_task(GroundedTaggingConfig(data=str(world / "pairs")))
    with pytest.raises(InputError, match=r"those in .*tags ask for tags: train on them with --task grounded_tagging"):
        GroundedSentencePredictionTask.setup_task(GroundedSentencePredictionConfig(data=str(world / "tags")))
    with pytest.raises(InputError, match="needs a folder of examples: visual-grounding prepare"):
        GroundedTaggingTask.setup_task(GroundedTaggingConfig())
    with pytest.raises(
        InputError, match=r"store should hold labelled examples, but .* says that it is a feature store"
    ):
        GroundedTaggingTask.setup_task(GroundedTaggingConfig(data=str(world / "store")))


def test_a_split_that_is_not_there_is_named(world):
    with pytest.raises(InputError, match="should hold examples of test, but has train, valid"):
        make_task(world).load_dataset("test")


def test_folders_of_several_epochs_ask_the_same(world):
    task = make_task(world, images=False, data=f"{world / 'pairs'}:{world / 'words'}")
    task.load_dataset("train", epoch=1)
    with pytest.raises(InputError, match=r"words should ask for what .*pairs asks for, but doesn't"):
        task.load_dataset("train", epoch=2)


@pytest.mark.parametrize(("pieces", "refused"), [(4, True), (5, False)])
def test_there_is_room_for_a_piece_of_each_sentence(world, pieces, refused):
    if refused:
        with pytest.raises(InputError, match=r"--max-pieces should be at least 5, .* but is 4"):
            make_task(world, max_pieces=pieces)
    else:
        tokens = whole(make_task(world, max_pieces=pieces))["net_input"]["src_tokens"]
        assert tokens.shape[1] == 4 and (tokens[:, [1, 3]] == 2).all()


def test_cuts_and_unknown_answers_are_counted(world, caplog):
    for name in ("pairs", "tags"):
        forget_digests(world / name)
    path = world / "pairs/valid.answers"
    path.write_text("strange\n" + path.read_text().split("\n", 1)[1])
    task = make_task(world, max_pieces=6)
    task.load_dataset("valid")
    cut = int((task.dataset("valid").dataset.whole_sizes > 5).sum())
    assert f"{cut} of 12 examples" in caplog.text and "are cut at --max-pieces." in caplog.text and cut
    assert "1 of 12 examples (8.3 %) have an answer that no example to train on has" in caplog.text


def validated(task, model, criterion, batches):
    """The scores of a split in some batches, as fairseq logs them."""
    criterion = criterion(task)
    with metrics.aggregate(new_root=True) as found:
        for rows in batches:
            dataset = task.dataset("valid")
            sample = dataset.collater([dataset[row] for row in rows])
            _, _, logged = task.valid_step(sample, model, criterion)
            task.reduce_metrics([logged], criterion)
    return found.get_smoothed_values()


@pytest.mark.parametrize("name", ["pairs", "values", "tags"])
def test_a_process_without_a_batch_left_adds_nothing(world, name):
    """`fairseq-validate` on several devices gives it an empty one."""
    task = make_task(world, name)
    task.load_dataset("valid")
    criterion = {"tags": GroundedTaggingCriterion}.get(name, GroundedSentencePredictionCriterion)
    words = (12, task.dataset("valid").dataset.examples.positions.lengths.max()) if name == "tags" else (12,)
    model = Said(lambda *_: torch.arange(int(np.prod(words))).reshape(words) % task.outputs, task.outputs)
    whole = validated(task, model, criterion, [range(12)])
    with metrics.aggregate(new_root=True) as found:
        dataset, made = task.dataset("valid"), criterion(task)
        logged = task.valid_step(dataset.collater([dataset[row] for row in range(12)]), model, made)[2]
        task.reduce_metrics([logged, task.valid_step({}, model, made)[2]], made)
    assert found.get_smoothed_values() == whole


class Said(torch.nn.Module):
    """A model that says what it is told to: classes of tags, or numbers."""

    def __init__(self, answers, classes):
        super().__init__()
        self.answers, self.classes, self.weight = answers, classes, torch.nn.Parameter(torch.ones(1))

    def forward(self, src_tokens, src_lengths, word_positions=None, visual=None, **_):
        said = self.answers(src_tokens, word_positions)
        return (
            torch.nn.functional.one_hot(said, self.classes).float() * 9 if self.classes > 1 else said.float()[..., None]
        )


CUTS = [[range(12)], [range(5), range(5, 12)], [range(0, 12, 2), range(1, 12, 2)]]


@pytest.mark.parametrize("batches", CUTS)
def test_scores_are_of_the_whole_split_however_it_is_cut(world, batches):
    task = make_task(world, images=False)
    task.load_dataset("valid")
    found = validated(
        task, Said(lambda tokens, _: tokens[:, 0] * 0 + 1, 2), GroundedSentencePredictionCriterion, batches
    )
    gold = task.dataset("valid").dataset.examples.targets
    right = int((gold == 1).sum())
    assert found["accuracy"] == round(right / 12, 4) and found["f1"] == round(2 * right / (12 + right), 4)
    bits = np.log2(1 + np.exp(-9.0)) * right + np.log2(1 + np.exp(9.0)) * (12 - right)
    assert found["loss"] == pytest.approx(bits / 12, abs=1e-3)


def test_numbers_are_scored_by_correlation(world):
    task = make_task(world, "values", images=False)
    task.load_dataset("valid")
    gold = torch.from_numpy(task.dataset("valid").dataset.examples.targets)
    order = iter([gold[:5] * -2, gold[5:] * -2])
    model = Said(lambda tokens, _: next(order), 1)
    found = validated(task, model, GroundedSentencePredictionCriterion, CUTS[1])
    assert found["spearman"] == found["pearson"] == -1
    assert found["loss"] == pytest.approx(float((3 * gold).square().mean()), abs=1e-3)


@pytest.mark.parametrize("batches", CUTS)
def test_entities_are_scored_over_the_whole_split(world, batches):
    from seqeval.metrics import f1_score

    task = make_task(world, "tags", images=False)
    task.load_dataset("valid")
    labels = task.asked.labels
    red = labels.index("B-red")
    found = validated(task, Said(lambda _, places: places * 0 + red, 7), GroundedTaggingCriterion, batches)
    gold = [line.split() for line in (world / "tags/valid.answers").read_text().splitlines()]
    assert found["entity_f1"] == round(f1_score(gold, [["B-red"] * len(line) for line in gold]), 4)
    assert found["tag_accuracy"] == round(sum(line.count("B-red") for line in gold) / sum(map(len, gold)), 4)


def test_entities_that_training_does_not_know_are_one_each_and_wrong(world):
    """`B-new I-new` is an entity, and what goes on after a known beginning isn't that entity."""
    forget_digests(world / "tags")
    lines = [["O"] * len(line.split()) for line in (world / "tags/valid.answers").read_text().splitlines()]
    lines[0][-2:], lines[1][-2:] = ["B-new", "I-new"], ["B-red", "I-red"]
    (world / "tags/valid.answers").write_text("".join(" ".join(line) + "\n" for line in lines))
    task = make_task(world, "tags", images=False)
    task.load_dataset("valid")
    labels = {label: number for number, label in enumerate(task.asked.labels)}
    assert set(labels) == {"O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("red", "old", "big"))}
    said = [torch.full((len(line),), labels["O"]) for line in lines]
    said[1][-2] = labels["B-red"]
    padded = torch.nn.utils.rnn.pad_sequence(said, batch_first=True, padding_value=labels["O"])
    found = validated(task, Said(lambda *_: padded, 7), GroundedTaggingCriterion, [range(12)])
    assert (found["entity_f1"], found["precision"], found["recall"]) == (0, 0, 0)
    gold = task.predicted(*[whole(task)["target"].numpy() + 3] * 2).gold
    assert gold[0][-2:] == ["B-?", "I-?"] and gold[1][-2:] == ["B-red", "I-red"]


def test_words_behind_the_cut_teach_nothing(world):
    task = make_task(world, "tags", images=False, max_pieces=4)
    task.load_dataset("train")
    batch = whole(task, "train")
    scores = torch.zeros(*batch["target"].shape, 7, requires_grad=True)

    class Model(torch.nn.Module):
        def forward(self, **_):
            return scores

    loss, words, logged = GroundedTaggingCriterion(task)(Model(), batch)
    loss.backward()
    kept = batch["net_input"]["word_positions"] >= 0
    assert (
        not scores.grad[~kept].any()
        and scores.grad[kept].abs().sum(dim=-1).all()
        and (~kept & (batch["target"] >= 0)).any()
    )
    assert words == int(kept.sum()) and loss.item() == pytest.approx(words * np.log(7), rel=1e-5)
    assert float(logged["loss"]) == pytest.approx(words * np.log2(7), rel=1e-5)


def test_training_is_in_random_order_and_validation_is_not(world):
    task = make_task(world, images=False)
    for split in ("train", "valid"):
        task.load_dataset(split)
    np.random.seed(1)
    orders = {
        split: [task.dataset(split).dataset.ordered_indices().tolist() for _ in range(2)]
        for split in ("train", "valid")
    }
    assert orders["train"][0] != orders["train"][1] and orders["valid"][0] == orders["valid"][1]


def test_words_behind_the_cut_are_outside_and_count(world):
    task = make_task(world, "tags", images=False, max_pieces=4)
    task.load_dataset("valid")
    gold = [line.split() for line in (world / "tags/valid.answers").read_text().splitlines()]
    right = {label: number for number, label in enumerate(task.asked.labels)}
    places = task.dataset("valid").dataset.examples.positions
    behind = Counter(tag for row, line in enumerate(gold) for tag, place in zip(line, places[row]) if place >= 2)
    # A model that says one and the same, which isn't behind the cut as often as what counts there.
    said = next(label for label in right if label != "O" and behind[label] != behind["O"])
    found = validated(task, Said(lambda _, places: places * 0 + right[said], 7), GroundedTaggingCriterion, CUTS[0])
    kept = [
        [tag == (said if place < 2 else "O") for tag, place in zip(line, places[row])] for row, line in enumerate(gold)
    ]
    assert found["tag_accuracy"] == round(sum(map(sum, kept)) / sum(map(len, gold)), 4)
    assert any(len(line) > 2 for line in gold)


def test_another_order_of_answers_is_refused_by_the_checkpoint(world):
    task = make_task(world, images=False)
    state = dict(task.state._state)
    path = world / "pairs/meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "labels": meta["labels"][::-1]}))
    with pytest.raises(
        InputError, match=r"what meta\.json beside .* says of answers should have the words that the chec"
    ):
        make_task(world, images=False).load_state_dict(state)


def test_a_checkpoint_of_examples_that_ask_something_else_is_refused(world):
    """A word's state, or the text's: both would fit the head that tells the same labels."""
    state = dict(make_task(world, images=False).state._state)
    assert state["asked"] == "pairs of sentences" and "image_sentence" not in state
    path = world / "pairs/meta.json"
    meta = json.loads(path.read_text())
    for change, asked in ({"sentences": 1}, "whole sentences"), ({"word": True, "sentences": 1}, "a word of each sent"):
        path.write_text(json.dumps(meta | change))
        with pytest.raises(InputError, match=f"should ask of pairs of sentences, as .*, but these ask of {asked}"):
            make_task(world, images=False).load_state_dict(state)
    path.write_text(json.dumps(meta))
    del state["asked"]
    make_task(world, images=False).load_state_dict(state)  # of before it was remembered


def test_images_of_another_sentence_than_in_training_are_told_of(world, caplog):
    state = dict(make_task(world, image_sentence="second").state._state)
    assert state["image_sentence"] == "second"
    make_task(world, image_sentence="second").load_state_dict(state)
    blind = make_task(world, images=False)
    blind.load_state_dict(state)
    assert blind.state._state["image_sentence"] == "second" and "--image-sentence" not in caplog.text
    make_task(world).load_state_dict(state)
    assert "trained with images of --image-sentence second, but here it gets those of first" in caplog.text


def test_the_sentence_whose_images_are_meant_is_told_where_there_are_none(world, caplog):
    make_task(world, images=False, image_sentence="second")
    assert "--image-sentence second changes nothing: without --image-features" in caplog.text
