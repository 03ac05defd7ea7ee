"""Grounded language models by fairseq's commands: images help, others don't, and training goes on where it was."""

import json
import re

import numpy as np
import pytest
import torch
from commands import run_command, train_in_two_processes
from conftest import write_image_ids, write_store
from fairseq import checkpoint_utils, options
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq_cli.train import main as fairseq_train
from small_grounded import IMAGES, NOUNS, make_world, mark_paired, whole

from visual_grounding.analysis.score_files import read_score_files
from visual_grounding.cli.main import main
from visual_grounding.criterions.grounded_masked_lm import GroundedMaskedLMCriterion
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.storage.checkpoints import load_checkpoint
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def pieces_of(folder, split):
    """The lines of a split, in pieces."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    return [dictionary.string(line) for line in data_utils.load_indexed_dataset(str(folder / split), dictionary)]


def words_of(world, out, *more, data="bin"):
    words = [world / data, "--task", "grounded_lm", "--arch", "grounded_albert", "--grounded-text-encoder",
             world / "encoder", "--criterion", "grounded_masked_lm", "--optimizer", "adam", "--lr", 0.003,
             "--batch-size", 10, "--cpu",
             "--save-dir", out, "--num-workers", 0, "--seed", 1, "--max-pieces", 20, "--no-progress-bar",
             *more]  # fmt: skip
    return list(map(str, words))


def train(world, out, *more, data="bin"):
    """`fairseq-train` in this process: it takes a second where a fresh one takes ten."""
    parser = options.get_training_parser()
    words = words_of(world, out, *more, data=data)
    fairseq_train(convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words)))


def images(world):
    return ["--image-features", world / "store", "--image-ids", world / "ids", "--images-per-sentence", 1]


def perplexity(checkpoint, **task):
    """Of the development lines, whose masks are fixed."""
    models, _, made = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=task)
    with torch.no_grad(), metrics.aggregate(new_root=True) as found:
        logged = GroundedMaskedLMCriterion(made, 1.0)(models[0].eval(), whole(made, "valid"))[2]
        GroundedMaskedLMCriterion.reduce_metrics([logged])
    return found.get_smoothed_values()["ppl"]


def test_paired_images_tell_words_and_others_do_not(world, tmp_path, capsys):
    flags = ["--mask-prob", 0.4, "--max-epoch", 70, "--disable-validation", "--no-epoch-checkpoints"]
    train(world, tmp_path / "m", *images(world), *flags)
    path = tmp_path / "m/checkpoint_last.pt"
    own = perplexity(path)
    assert own < 0.8 * perplexity(path, image_order="shuffled")
    assert own < perplexity(path, image_order="blank")
    words = ["--checkpoint", path, "--split", "valid", "--image-order", "congruent", "shuffled"]
    status, said = evaluate(capsys, *words, "--out", tmp_path / "s")
    found = json.loads((tmp_path / "s/scores.json").read_text())["comparison"]["perplexity"]
    assert status == 0 and found["p_value"] < 0.05 and found["high"] < 0, said  # lower is better


def evaluate(capsys, *words):
    status = main(["evaluate", "perplexity", *map(str, words), "--device", "cpu"])
    said = capsys.readouterr()
    return status, said.out if status == 0 else said.err


def test_perplexities_have_intervals_and_twins_are_asked_the_same_words(world, tmp_path, capsys):
    few = ["--max-epoch", 8, "--disable-validation", "--no-epoch-checkpoints", "--mask-prob", 0.4]
    train(world, tmp_path / "seeing", *images(world), *few)
    train(world, tmp_path / "blind", *few)
    seeing, blind = (tmp_path / name / "checkpoint_last.pt" for name in ("seeing", "blind"))
    words = ["--checkpoint", seeing, "--split", "valid", "--batch-size", 5]
    status, said = evaluate(capsys, *words, "--twin-checkpoint", blind, "--out", tmp_path / "s")
    found = json.loads((tmp_path / "s/scores.json").read_text())
    own, other = (found["systems"][name]["perplexity"]["mean"] for name in ("hypothesis", "twin"))
    assert status == 0 and own == pytest.approx(perplexity(seeing), abs=0.01)
    assert other == pytest.approx(perplexity(blind), abs=0.01)
    assert found["comparison"]["perplexity"]["delta"] == pytest.approx(own - other)
    assert found["systems"]["twin"]["images"] == "none" and f"{found['words']} hidden words of 12 lines" in said
    assert (
        found["systems"]["hypothesis"]["perplexity"]["low"] < own < found["systems"]["hypothesis"]["perplexity"]["high"]
    )
    status, _ = evaluate(capsys, *words, "--image-order", "congruent", "shuffled", "--out", tmp_path / "t")
    other = json.loads((tmp_path / "t/scores.json").read_text())
    assert other["systems"]["twin"]["perplexity"]["mean"] == pytest.approx(
        perplexity(seeing, image_order="shuffled"), abs=0.01
    )
    assert other["test_set"] == found["test_set"] and status == 0


def test_hidden_regions_are_told_by_models_that_learned_them(world, tmp_path, capsys):
    few = ["--max-epoch", 40, "--disable-validation", "--no-epoch-checkpoints", "--grounding-objective", "both"]
    train(world, tmp_path / "m", *images(world), *few, "--region-loss-power", 2, "--region-mask-prob", 0.6)
    path = tmp_path / "m/checkpoint_last.pt"
    words = ["--checkpoint", path, "--split", "valid", "--batch-size", 5]
    status, said = evaluate(capsys, *words, "--image-order", "congruent", "shuffled", "--out", tmp_path / "s")
    report = read_score_files(tmp_path / "s").scores
    assert status == 0 and list(report["metrics"]) == ["perplexity", "region_loss"], said
    for name, order in (("hypothesis", "congruent"), ("twin", "shuffled")):
        system = report["systems"][name]
        right, regions = region_loss(path, image_order=order)
        assert system["region_loss"]["mean"] == pytest.approx(right, rel=1e-5) and system["regions"] == regions > 11
        assert system["region_loss"]["low"] < right < system["region_loss"]["high"]
    test = report["comparison"]["region_loss"]
    assert test["high"] < 0 and test["p_value"] < 0.05  # a line's words tell its own photo, not another's
    assert f"and {report['systems']['hypothesis']['regions']} hidden regions of 12 lines" in said
    assert "hypothesis - twin, region loss: -" in said
    status, said = evaluate(capsys, *words, "--image-order", "congruent", "blank", "--out", tmp_path / "t")
    report = read_score_files(tmp_path / "t").scores
    assert (
        status == 0 and "region_loss" not in report["systems"]["twin"] and list(report["comparison"]) == ["perplexity"]
    )
    train(world, tmp_path / "o", *images(world), *few, "--region-mask-prob", 0.3, "--max-epoch", 1)
    other = [*words, "--twin-checkpoint", tmp_path / "o/checkpoint_last.pt", "--out", tmp_path / "v"]
    assert main(["evaluate", "perplexity", *map(str, other), "--device", "cpu"]) == 0
    assert "the twin hides other regions (--region-mask-prob, --images-per" in capsys.readouterr().err
    assert "region_loss" not in read_score_files(tmp_path / "v").scores["comparison"]
    others = np.array(ImageIds(world / "ids/valid").ids)
    others[:-1] = (others[:-1] + 1) % IMAGES
    for split, ids in (("train", np.array(ImageIds(world / "ids/train").ids)), ("valid", others)):
        write_image_ids(tmp_path / "ids" / split, ids, FeatureStore(world / "store").keys_sha256)
        mark_paired(tmp_path / "ids" / split)
    more = ["--image-features", world / "store", "--image-ids", tmp_path / "ids", "--images-per-sentence", 1]
    train(world, tmp_path / "p", *few, *more, "--region-mask-prob", 0.6, "--max-epoch", 1)
    other = [*words, "--twin-checkpoint", tmp_path / "p/checkpoint_last.pt", "--out", tmp_path / "w"]
    assert main(["evaluate", "perplexity", *map(str, other), "--device", "cpu"]) == 0
    assert "the twin hides other regions" in capsys.readouterr().err  # the same places, of other photos
    features = np.ones((8, 2, 6), dtype=np.float32)
    other = write_store(tmp_path / "other", features, signature="other")
    more = ["--image-features", other, "--image-ids", world / "ids", "--images-per-sentence", 1, "--max-epoch", 1]
    train(world, tmp_path / "n", *few, *more)
    words += ["--twin-checkpoint", tmp_path / "n/checkpoint_last.pt", "--out", tmp_path / "u"]
    assert main(["evaluate", "perplexity", *map(str, words), "--device", "cpu"]) == 0
    assert "the twin's regions are of other features, so its region loss is left out" in capsys.readouterr().err
    systems = read_score_files(tmp_path / "u").scores["systems"]
    assert "region_loss" in systems["hypothesis"] and "region_loss" not in systems["twin"]


def region_loss(checkpoint, **task):
    """Mean absolute difference of the development lines' hidden regions, and how many these are: a naive loop."""
    models, _, made = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], arg_overrides=task)
    batch, far = whole(made, "valid"), []
    model, visual = models[0].eval(), batch["net_input"]["visual"]
    with torch.no_grad():
        for row in range(len(batch["id"])):
            hidden = batch["hidden_regions"][row : row + 1]
            one = {name: each[row : row + 1] for name, each in visual.items()}
            found = model.encoder(batch["net_input"]["src_tokens"][row : row + 1], one, hidden).regions
            predicted = model.image_head(found[hidden.flatten(1)])
            far += (predicted - one["features"][hidden].float()).abs().mean(dim=1).tolist()
    return sum(far) / len(far), len(far)


def test_masks_of_tables_are_asked_of_models_without_images(world, tmp_path, capsys):
    """What is hidden where images are found is asked of all; masks of another table are refused."""
    few = ["--max-epoch", 1, "--disable-validation", "--no-epoch-checkpoints"]
    train(world, tmp_path / "seeing", *images(world), *few)
    train(world, tmp_path / "blind", *few)
    (tmp_path / "captions.tsv").write_text("".join(f"image{n}.jpg\ta {NOUNS[n % 4]}\n" for n in range(8)))
    bridge = TokenizerBridge(str(world / "encoder"))
    lines = [bridge.text_of(line) for line in pieces_of(world / "bin", "valid")]
    (tmp_path / "valid.txt").write_text("".join(f"{line}\n" for line in lines))
    for seed in (1, 2):
        flags = ["--captions", tmp_path / "captions.tsv", "--image-features", world / "store", "--text",
                 tmp_path / "valid.txt", "--mask-prob", 0.15, "--mask-tokenizer", world / "encoder",
                 "--mask-seed", seed, "-n", 1, "--out", tmp_path / f"ids{seed}/valid"]  # fmt: skip
        assert main(["retrieve", "--method", "keyword", *map(str, flags)]) == 0
    seeing, blind = (tmp_path / name / "checkpoint_last.pt" for name in ("seeing", "blind"))
    words = ["--split", "valid", "--image-ids", tmp_path / "ids1"]
    status, said = evaluate(capsys, *words, "--checkpoint", seeing, "--twin-checkpoint", blind, "--out", tmp_path / "s")
    assert status == 0, said
    found = json.loads((tmp_path / "s/scores.json").read_text())
    asked = ImageIds(tmp_path / "ids1/valid").mask
    assert found["words"] == sum(int(asked.hidden(row).sum()) for row in range(len(lines)))
    # Alone it is asked the words of its own fixed masks: other ones.
    status, _ = evaluate(capsys, "--split", "valid", "--checkpoint", blind, "--out", tmp_path / "t")
    alone = json.loads((tmp_path / "t/scores.json").read_text())
    assert status == 0 and alone["test_set"] != found["test_set"]
    words = ["--split", "valid", "--checkpoint", blind, "--masks", tmp_path / "ids1/valid"]
    status, _ = evaluate(capsys, *words, "--out", tmp_path / "u")
    alone = json.loads((tmp_path / "u/scores.json").read_text())
    assert status == 0 and alone["test_set"] == found["test_set"]
    assert alone["systems"]["hypothesis"]["perplexity"] == found["systems"]["twin"]["perplexity"]
    words = ["--split", "valid", "--checkpoint", seeing, "--image-ids", tmp_path / "ids1"]
    status, said = evaluate(capsys, *words, "--masks", tmp_path / "ids2/valid", "--out", tmp_path / "v")
    assert status == 2 and "were found with another mask than that of" in said
    words = ["--split", "valid", "--checkpoint", blind, "--image-ids", tmp_path / "ids1", "--out", tmp_path / "v"]
    status, said = evaluate(capsys, *words)
    assert status == 2 and "images are given, but" in said and "learned from text alone" in said
    words = ["--split", "valid", "--checkpoint", seeing, "--masks", world / "ids/valid", "--out", tmp_path / "v"]
    status, said = evaluate(capsys, *words)
    assert status == 2 and "should have been made with a mask, but wasn't" in said


def test_captions_and_text_are_mixed_and_both_sides_learned(world, tmp_path):
    """By the command itself, in a fresh process."""
    flags = ["--user-dir", "visual_grounding", "--caption-data", world / "bin", *images(world)]
    flags += ["--grounding-objective", "both", "--valid-subset", "valid,captions-valid", "--max-epoch", 2]
    done = run_command("fairseq-train", *words_of(world, tmp_path / "m", *flags, data="text"))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    assert said.count("20 lines of text, and as many of 40 captions with their images") == 1
    subsets = ("valid", "captions-valid")
    logged = {subset: re.findall(rf"\| {subset} \| epoch 002 \|(.*)", said)[-1] for subset in subsets}
    assert all(name in logged["captions-valid"] for name in ("mlm_loss", "region_loss", "word_accuracy"))
    assert "word_accuracy" in logged["valid"] and "region_loss" not in logged["valid"]


def test_what_learned_from_captions_has_images_of_other_text_where_they_are_named(world, tmp_path, capsys):
    few = ["--caption-data", world / "bin", "--max-epoch", 2, "--disable-validation", "--no-epoch-checkpoints"]
    train(world, tmp_path / "m", *images(world), *few, data="text")
    words = ["--checkpoint", tmp_path / "m/checkpoint_last.pt", "--out", tmp_path / "s"]

    def found(*more):
        status, said = evaluate(capsys, *words, *more)
        assert status == 0, said
        systems = json.loads((tmp_path / "s/scores.json").read_text())["systems"].values()
        return [(each["images"], each["perplexity"]["mean"]) for each in systems if each]

    captions = found("--split", "captions-valid", "--image-order", "congruent", "shuffled")
    given = ["--split", "valid", "--data", world / "bin", "--image-ids", world / "ids"]
    assert found(*given, "--image-order", "congruent", "shuffled") == captions
    assert [name for name, _ in captions] == ["congruent", "shuffled"] and captions[0][1] != captions[1][1]
    blank = found("--split", "captions-valid", "--image-order", "blank")
    assert found("--split", "valid", "--data", world / "bin") == [("none", blank[0][1])]
    status, said = evaluate(capsys, *words, "--split", "valid", "--image-order", "congruent", "shuffled")
    assert status == 2 and "images can't be shuffled, as those of" in said and "or ask for captions-valid" in said
    status, said = evaluate(capsys, *words, "--split", "valid", "--images-per-sentence", 1)
    assert status == 2 and "lines of valid have none" in said and "--images-per-sentence" in said
    assert found("--split", "valid", "--image-order", "blank") == found("--split", "valid")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["jmrm", "both"])
def test_two_processes_learn_from_captions_and_text(world, tmp_path, objective):
    """Batches of one have text alone in one process, and a caption's regions in the other."""
    flags = ["--user-dir", "visual_grounding", "--caption-data", world / "bin", *images(world), "--max-epoch", 2]
    flags += ["--grounding-objective", objective, "--valid-subset", "valid,captions-valid", "--batch-size", 2]
    words = words_of(world, tmp_path / "m", *flags, data="text")
    outputs = train_in_two_processes(*words)
    for subset, names in (("captions-valid", ["region_loss"]), ("train", ["mlm_loss", "region_loss"])):
        said = re.findall(rf"\| {subset} \| epoch 002 \|(.*)", outputs[0])[-1]
        assert all(name in said for name in names), said


def found_images(world):
    """Flags that find each line's image anew, for what its mask leaves in this epoch."""
    (world / "captions.tsv").write_text("".join(f"image{n}.jpg\ta {NOUNS[n % 4]}\n" for n in range(8)))
    finder = f"keyword --captions {world / 'captions.tsv'} --image-features {world / 'store'} -n 1"
    return ["--image-features", world / "store", "--image-finder", finder, "--finder-tokenizer", world / "encoder"]


def test_images_are_found_in_workers_while_training(world, tmp_path):
    """By the command itself, in a fresh process, whose worker has the finder."""
    flags = ["--user-dir", "visual_grounding", *found_images(world), "--max-epoch", 2]
    made = {}
    for name, more in {"none": [], "one": ["--num-workers", 1], "blank": ["--image-order", "blank"]}.items():
        done = run_command("fairseq-train", *words_of(world, tmp_path / name, *flags, *more))
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        made[name] = load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"]
    assert all(torch.equal(made["one"][name], made["none"][name]) for name in made["none"])
    projection = "encoder.image_projection.weight"
    assert not torch.equal(made["one"][projection], made["blank"][projection])


def test_tables_take_the_place_of_the_finder_of_training(world, tmp_path, capsys):
    train(world, tmp_path / "m", *found_images(world), "--max-epoch", 2, "--no-epoch-checkpoints")
    found = {}
    for name, more in {"finder": [], "tables": ["--image-ids", world / "ids"]}.items():
        words = ["--checkpoint", tmp_path / "m/checkpoint_last.pt", "--split", "valid", *more, "--out", tmp_path / name]
        status, said = evaluate(capsys, *words)
        assert status == 0, said
        found[name] = json.loads((tmp_path / name / "scores.json").read_text())
    assert found["finder"]["test_set"] == found["tables"]["test_set"]  # the same lines and masks, with other images
    assert found["finder"]["systems"]["hypothesis"] != found["tables"]["systems"]["hypothesis"]
    # fairseq-validate keeps what training was told, unless it is taken back.
    words = [
        world / "bin", "--user-dir", "visual_grounding", "--task", "grounded_lm",
        "--path", tmp_path / "m/checkpoint_last.pt",
        "--image-features", world / "store", "--image-ids", world / "ids", "--batch-size", 10,
        "--num-workers", 0, "--cpu", "--no-progress-bar", "--log-format", "json",
    ]  # fmt: skip
    done = run_command("fairseq-validate", *words)
    assert done.returncode != 0 and "leave it away: --image-finder '' --finder-tokenizer ''" in done.stderr
    done = run_command("fairseq-validate", *words, "--image-finder", "", "--finder-tokenizer", "")
    assert done.returncode == 0, done.stderr
    asked = found["tables"]["systems"]["hypothesis"]["perplexity"]["mean"]
    told = re.search(r'"valid_ppl": "([\d.]+)"', done.stdout + done.stderr)
    assert told and float(told[1]) == pytest.approx(asked, rel=0.01)


@pytest.mark.parametrize("images_are", ["tabled", "mixed", "found"])
def test_training_goes_on_exactly_where_it_was(world, tmp_path, images_are):
    """Each line with its image; text and captions, others in each epoch; with what is found for it as it is masked."""
    flags = ["--grounding-objective", "both", "--save-interval-updates", 6, "--keep-interval-updates", 1]
    flags += found_images(world) if images_are == "found" else images(world)
    flags += ["--caption-data", world / "bin"] if images_are == "mixed" else []
    data = "text" if images_are == "mixed" else "bin"
    train(world, tmp_path / "whole", *flags, "--max-epoch", 3, data=data)
    train(world, tmp_path / "parts", *flags, "--max-update", 6, data=data)
    train(world, tmp_path / "parts", *flags, "--max-epoch", 3, data=data)
    one, other = (load_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"] for name in ("whole", "parts"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
