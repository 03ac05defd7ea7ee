"""The recipes of VTLM and VLP on real data: what they miss they say, and all their default steps run."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from commands import for_scripts
from conftest import REPOSITORY

from visual_grounding.errors import InputError

sys.path.insert(0, str(REPOSITORY / "examples" / "multi30k"))
from mobilenet import mobilenet

EXAMPLES = REPOSITORY / "examples"
RECIPES = {  # of masked and of whole sources the model and its twin
    "vtlm": {"masked": ("vtlm-mmt", "tlm-nmt"), "plain": ("vtlm-mmt", "tlm-nmt")},
    "vlp_modality_loss": {"masked": ("learned-last-2", "bert-enc-2"), "plain": ("learned-last-1", "bert-enc-1")},
}
ONE_EPOCH = ("TEXT", "PRETRAIN", "CONTINUE", "", "STAGE1", "STAGE2")


def run_script(path: str, **environment: object) -> subprocess.CompletedProcess[str]:
    unset = {"DATA", "OUT", "SEEDS", "FULL", "VISUAL_GROUNDING_DATA"}
    kept = {key: value for key, value in os.environ.items() if key not in unset}
    values = {key: str(value) for key, value in environment.items()}
    return subprocess.run(["bash", EXAMPLES / path], env={**kept, **values}, capture_output=True, text=True)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"DATA": "/nowhere"}, "DATA should be a folder with flickr8k/ in it, but is '/nowhere'"),
        ({"SEEDS": "0"}, "SEEDS should be a whole number from 1 on, but is '0'"),
        ({"LIMIT": "all"}, "LIMIT should be a whole number from 1 on, but is 'all'"),
        ({"SIZE": "huge"}, "SIZE should be small or paper, but is 'huge'"),
    ],
)
def test_scripts_say_what_is_missing(recipe, variables, message, tmp_path):
    done = run_script(f"{recipe}/prepare.sh", OUT=tmp_path, **variables)
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_run_refuses_words_that_it_does_not_know():
    done = subprocess.run(["bash", EXAMPLES / "vtlm/run.sh", "--ful"], capture_output=True, text=True)
    assert done.returncode == 2 and re.search(r"usage: \S*vtlm/run\.sh \[--full\]", done.stderr)


def test_mobilenet_has_no_weights_of_its_own():
    with pytest.raises(InputError, match=r"Name mobilenet_v1_0\.25_224\.safetensors"):
        mobilenet()


@pytest.mark.data
def test_mobilenet_takes_every_weight_and_pads_right_and_bottom(real_data):
    backbone = mobilenet(str(real_data / "flickr8k/weights/mobilenet_v1_0.25_224.safetensors"))
    assert len(backbone.class_names) == 1000 and backbone.preprocessing.shape == (224, 224)
    images = torch.zeros(1, 3, 64, 64)
    with torch.no_grad():
        pooled, logits = backbone.classifier(images)
        assert pooled.shape == (1, 256) and logits.shape == (1, 1000)
        first = backbone.network.step("conv1", torch.ones(1, 3, 8, 8), halve=True)
    assert first.shape[2:] == (4, 4)
    torch.testing.assert_close(first[..., :3, :3], first[..., :1, :1].expand_as(first[..., :3, :3]))  # no padding there
    assert not torch.allclose(first[..., 3, :], first[..., 2, :])  # but behind the last row


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_runs_from_raw_files_to_scores_on_a_slice(recipe, real_data, tmp_path):
    epochs = {f"{name}_EPOCHS".lstrip("_"): 1 for name in ONE_EPOCH}
    choices = {"DATA": real_data, "OUT": tmp_path, "LIMIT": 40, "MERGES": 300, "OMP_NUM_THREADS": 1, **epochs}
    for part in ("prepare", "train", "evaluate"):
        done = run_script(f"{recipe}/{part}.sh", **choices, **for_scripts())
        assert done.returncode == 0, f"{part}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    rows = json.loads((tmp_path / "table/runs.json").read_text())
    places = {f"{kind}.{split}.{model}.against.{other}" for kind, (model, twin) in RECIPES[recipe].items()
              for split in ("valid", "test") for other in (twin, f"{model}.shuffled", f"{model}.blank")}  # fmt: skip
    assert places == {row["name"] for row in rows["rows"]}
    claims = json.dumps(json.loads((tmp_path / "claims/runs.json").read_text()))
    model, twin = RECIPES[recipe]["masked"]
    assert f"masked.valid.{model}.against.{twin}" in claims and "plain.valid" not in claims
    if recipe == "vlp_modality_loss":
        assert (tmp_path / "figure3.png").read_bytes().startswith(b"\x89PNG")
    for kind, (_, twin) in RECIPES[recipe].items():
        assert twin in (tmp_path / f"page/{kind}/report.html").read_text(encoding="utf-8")
