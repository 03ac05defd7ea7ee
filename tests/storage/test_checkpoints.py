"""Safe loading, averaging and counting of fairseq checkpoints, made by hand and by fairseq itself."""

import argparse
import math
import pickle
import subprocess
import sys
import warnings
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from commands import run_command

from visual_grounding.analysis.hypotheses import read_hypotheses
from visual_grounding.errors import InputError
from visual_grounding.storage.checkpoints import (
    architecture,
    average_checkpoints,
    count_parameters,
    last_epoch_checkpoints,
    load_checkpoint,
)


def save(path: Path, model: dict[str, torch.Tensor], **more: Any) -> Path:
    """A checkpoint of fairseq's structure."""
    state = {"args": argparse.Namespace(arch="transformer"), "model": model, "extra_state": {"epoch": 3}, **more}
    torch.save(state, path)
    return path


class Surprise:
    """A class that no checkpoint should bring along."""


def test_average_by_hand_keeps_types_and_the_rest_of_the_last(tmp_path: Path) -> None:
    paths = [
        save(
            tmp_path / f"{i}.pt",
            {
                "w": torch.tensor([1.0, 2.0 * i]),
                "half": torch.tensor([60000.0, i], dtype=torch.float16),
                "brain": torch.tensor([float(i)], dtype=torch.bfloat16),
                "positions": torch.tensor([0, 1]),
                "norm.num_batches_tracked": torch.tensor(i),
            },
            last_optimizer_state={"step": 1},
            num=i,
        )
        for i in (1, 2, 6)
    ]
    state = average_checkpoints(paths)
    model = state["model"]
    assert model["w"].tolist() == [1.0, 6.0]
    assert model["half"].tolist() == [60000.0, 3.0]  # their sum in float16 would be infinite
    assert model["brain"].tolist() == [3.0]
    assert [model[name].dtype for name in ("w", "half", "brain")] == [torch.float32, torch.float16, torch.bfloat16]
    assert model["positions"].tolist() == [0, 1]
    assert model["norm.num_batches_tracked"] == 6
    assert (state["num"], state["args"].arch, state["extra_state"]) == (6, "transformer", {"epoch": 3})
    assert "last_optimizer_state" not in state


def test_average_sums_in_double_precision(tmp_path: Path) -> None:
    # In float32, 1e8 + 1 is 1e8: the small addends would be lost.
    paths = [save(tmp_path / f"{i}.pt", {"w": torch.tensor([v])}) for i, v in enumerate([1e8, 1.0, 1.0, -1e8])]
    assert average_checkpoints(paths)["model"]["w"].item() == 0.5


def test_average_of_one_checkpoint_and_of_equal_ones_is_itself(tmp_path: Path) -> None:
    weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    path = save(tmp_path / "one.pt", {"w": weight})
    assert torch.equal(average_checkpoints([path])["model"]["w"], weight)
    assert torch.equal(average_checkpoints([path] * 7)["model"]["w"], weight)


def test_average_does_not_depend_on_the_order(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{i}.pt", {"w": torch.full((2, 2), float(i))}) for i in range(3)]
    assert torch.equal(average_checkpoints(paths)["model"]["w"], average_checkpoints(paths[::-1])["model"]["w"])


def test_average_keeps_shared_weights_shared(tmp_path: Path) -> None:
    paths = []
    for i in range(2):
        weight = torch.full((5, 3), float(i))
        paths.append(save(tmp_path / f"{i}.pt", {"embed": weight, "out": weight, "other": weight.clone()}))
    model = average_checkpoints(paths)["model"]
    assert model["embed"].data_ptr() == model["out"].data_ptr() != model["other"].data_ptr()
    assert model["embed"].unique().tolist() == [0.5]


def test_average_is_refused_when_names_differ(tmp_path: Path) -> None:
    one = save(tmp_path / "one.pt", {"w": torch.ones(2), "extra": torch.ones(1)})
    two = save(tmp_path / "two.pt", {"w": torch.ones(2)})
    for order in ([one, two], [two, one]):
        with pytest.raises(InputError, match=r"one.pt has 'extra' and .*two.pt doesn't"):
            average_checkpoints(order)


def test_average_is_refused_when_shapes_or_types_differ(tmp_path: Path) -> None:
    one = save(tmp_path / "one.pt", {"w": torch.ones(2, 3)})
    two = save(tmp_path / "two.pt", {"w": torch.ones(2, 4)})
    half = save(tmp_path / "half.pt", {"w": torch.ones(2, 3).half()})
    with pytest.raises(InputError, match=r"'w' should be torch.float32 of shape \(2, 3\) .*one.pt.* \(2, 4\) in .*two"):
        average_checkpoints([one, two])
    with pytest.raises(InputError, match=r"but is torch.float16 of shape \(2, 3\) in .*half.pt"):
        average_checkpoints([one, half])


def test_average_is_refused_when_integers_differ(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{i}.pt", {"w": torch.ones(1), "table": torch.tensor([i])}) for i in range(2)]
    with pytest.raises(InputError, match=r"'table' holds torch.int64, which has no mean, but .*0.pt and .*1.pt differ"):
        average_checkpoints(paths)


def test_average_is_refused_when_a_weight_is_no_number(tmp_path: Path) -> None:
    broken = {"w": torch.tensor([1.0, float("nan")])}
    paths = [save(tmp_path / "1.pt", {"w": torch.ones(2)}), save(tmp_path / "2.pt", broken)]
    with pytest.raises(InputError, match=r"2.pt should have numbers as weights, but 'w' holds NaN: leave it out"):
        average_checkpoints(paths)
    infinite = [save(tmp_path / f"{sign}.pt", {"w": torch.tensor([sign * math.inf])}) for sign in (1, -1)]
    with pytest.raises(InputError, match=r"weights with a mean, but 'w' is infinite with both signs"):
        average_checkpoints(infinite)
    masks = {"w": torch.tensor([1.0, float("-inf")])}  # such as of a future that isn't looked at
    assert average_checkpoints([save(path, masks) for path in paths])["model"]["w"].tolist() == [1, float("-inf")]


def test_average_is_refused_when_image_features_were_made_otherwise(tmp_path: Path) -> None:
    signatures = ["extract|images:9|backbone:a|version:1", "extract|images:4|backbone:a|version:2", None, "extract|b"]
    paths = [
        save(tmp_path / f"{number}.pt", {"w": torch.ones(1)}, task_state={"image_features": signature})
        for number, signature in enumerate(signatures)
    ]
    before = save(tmp_path / "before.pt", {"w": torch.ones(1)}, task_state={})
    assert average_checkpoints([paths[0], before, *paths[2::-1]])["task_state"] == {"image_features": signatures[0]}
    with pytest.raises(InputError, match=r"0.pt was on extract\|images:9.*, and .*3.pt on extract\|b\."):
        average_checkpoints([paths[0], paths[3]])
    for others in ([before], [paths[2]]):  # what one knows is kept, wherever it stands
        assert average_checkpoints([paths[0], *others])["task_state"]["image_features"] == signatures[0]
        with pytest.raises(InputError, match=r"0.pt was on .*, and .*3.pt on extract\|b\."):
            average_checkpoints([*others, paths[0], paths[3]])
    with pytest.raises(InputError, match=r"in text as task_state\['image_features'\], but says 7"):
        average_checkpoints([save(tmp_path / "number.pt", {"w": torch.ones(1)}, task_state={"image_features": 7})])


def test_average_is_refused_when_words_differ(tmp_path: Path) -> None:
    one, same, other = (
        save(tmp_path / f"{number}.pt", {"w": torch.ones(1)}, task_state={"dictionaries": {"source": digest}})
        for number, digest in enumerate(["aa", "aa", "bb"])
    )
    silent = save(tmp_path / "silent.pt", {"w": torch.ones(1)})
    assert average_checkpoints([one, same, silent])["task_state"] == {"dictionaries": {"source": "aa"}}
    with pytest.raises(InputError, match=r"source dictionary of .*2.pt has the sha256 bb, .* before it aa\."):
        average_checkpoints([one, silent, other])


def test_average_is_refused_when_there_is_nothing() -> None:
    with pytest.raises(InputError, match=r"at least one checkpoint is needed"):
        average_checkpoints([])


def test_loading_accepts_what_meters_and_configurations_hold(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    path = save(
        tmp_path / "full.pt",
        {"w": torch.ones(1)},
        cfg=omegaconf.OmegaConf.create({"lr": [0.1], "path": None, "name": "x", "n": 1, "ref": "${n}"}),
        counts=np.arange(3),
        score=np.float64(0.5),
        others=[np.zeros(2, np.float16), np.ones(1, bool), np.float32(1), np.int32(4)],
    )
    state = load_checkpoint(path)
    assert state["cfg"].ref == 1
    assert state["counts"].tolist() == [0, 1, 2]
    assert state["score"] == 0.5


def test_loading_refuses_code_and_names_it(tmp_path: Path) -> None:
    path = save(tmp_path / "bad.pt", {"w": torch.ones(1)}, surprise=Surprise())
    with pytest.raises(InputError, match=r"bad.pt should hold tensors and settings only, .*test_checkpoints.Surprise"):
        load_checkpoint(path)


@pytest.mark.parametrize("zipped", [True, False])  # as torch saves since 1.6, and as before
def test_loading_refuses_a_truncated_checkpoint(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "cut.pt"
    torch.save({"model": {"w": torch.ones(1000)}}, path, _use_new_zipfile_serialization=zipped)
    assert load_checkpoint(path)["model"]["w"].sum() == 1000
    whole = path.read_bytes()
    for left in (2000, 3500, len(whole) - 1):  # of some torch says "Invalid argument", as of a file that can't be read
        path.write_bytes(whole[:left])
        with pytest.raises(InputError, match=r"cut.pt should be a fairseq checkpoint, but is truncated or") as refused:
            load_checkpoint(path)
        assert "doesn't begin" not in str(refused.value)  # torch's own reason


@pytest.mark.parametrize("content", [b"", b"epoch 3\n", b"# A title, of which torch speaks at length\n", bytes(256)])
def test_loading_refuses_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.pt").write_bytes(content)
    message = r"other.pt should be a fairseq checkpoint, but .* another kind: it doesn't begin as a file of torch.save"
    with pytest.raises(InputError, match=message):
        load_checkpoint(tmp_path / "other.pt")


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ([1], "is a list"),
        ({"weights": 1}, r"holds \['weights'\]"),
        ({"model": {}}, "holds"),
        ({"model": {"w": 1}}, "holds"),
    ],
)
def test_loading_refuses_other_pickles(tmp_path: Path, state: Any, found: str) -> None:
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(InputError, match=rf"other.pt should be a fairseq checkpoint with weights .* but {found}"):
        load_checkpoint(tmp_path / "other.pt")


def test_other_pickles_are_refused_without_a_warning_of_torch(tmp_path: Path) -> None:
    (tmp_path / "other.pt").write_bytes(pickle.dumps({"model": Fraction(1, 2)}, protocol=4))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(InputError, match=r"other.pt should "):
            load_checkpoint(tmp_path / "other.pt")
    assert not said


def test_loading_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.pt can't be read: No such file"):
        load_checkpoint(tmp_path / "nothing.pt")


def test_allowing_needs_neither_fairseq_nor_omegaconf() -> None:
    script = (
        "import sys; sys.modules['omegaconf'] = None\n"
        "from visual_grounding.storage.checkpoints import allow_fairseq_checkpoints as allow\n"
        "allow(); allow()\n"
        "import torch; names = [getattr(c, '__name__', str(c)) for c in torch.serialization.get_safe_globals()]\n"
        "assert names.count('Namespace') == 1 and 'fairseq' not in sys.modules, names\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_last_epochs_are_by_number_and_ignore_other_checkpoints(tmp_path: Path) -> None:
    for name in ("checkpoint9.pt", "checkpoint10.pt", "checkpoint2.pt", "checkpoint_best.pt", "checkpoint_3_100.pt"):
        (tmp_path / name).touch()
    assert [path.name for path in last_epoch_checkpoints(tmp_path, 2)] == ["checkpoint9.pt", "checkpoint10.pt"]
    with pytest.raises(InputError, match=r"at least 4 epoch checkpoints .*, but has 3"):
        last_epoch_checkpoints(tmp_path, 4)
    with pytest.raises(InputError, match=r"at least 1 checkpoint, but are 0"):
        last_epoch_checkpoints(tmp_path, 0)
    with pytest.raises(InputError, match=r"nowhere can't be read: No such file"):
        last_epoch_checkpoints(tmp_path / "nowhere", 1)


def test_parameters_count_shared_weights_once_and_no_buffers() -> None:
    embedding = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    model = {
        "encoder.embed": embedding,
        "decoder.embed": embedding,  # the same memory
        "decoder.output": embedding.clone(),  # the same weight as a GPU run saves it
        "norm.weight": torch.ones(4),
        "norm2.weight": torch.ones(4),  # equal vectors are two parameters: norms begin equal
        "encoder.version": torch.tensor([3.0]),
        "encoder.embed_positions._float_tensor": torch.zeros(1),
        "bn.running_mean": torch.zeros(4),
        "bn.num_batches_tracked": torch.tensor(5),
    }
    assert count_parameters(model) == 7 * 4 + 4 + 4
    assert count_parameters({**model, "norm3.weight": torch.ones(4)}) == 7 * 4 + 4 + 4 + 4


@pytest.mark.slow
def test_average_of_a_real_training_loads_and_translates(tiny_translation: Path, user_dir: str, tmp_path: Path) -> None:
    trained = run_command(
        "fairseq-train", tiny_translation / "bin", "--arch", "transformer", "--share-decoder-input-output-embed",
        "--encoder-layers", 1, "--decoder-layers", 1, "--encoder-embed-dim", 16, "--decoder-embed-dim", 16,
        "--encoder-ffn-embed-dim", 32, "--decoder-ffn-embed-dim", 32, "--encoder-attention-heads", 2,
        "--decoder-attention-heads", 2, "--optimizer", "adam", "--lr", 0.01, "--max-tokens", 128, "--max-epoch", 3,
        "--criterion", "label_smoothed_cross_entropy", "--cpu", "--save-dir", tmp_path / "run", "--eval-bleu",
        "--eval-bleu-args", '{"beam": 1}', "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    paths = last_epoch_checkpoints(tmp_path / "run", 2)
    assert [path.name for path in paths] == ["checkpoint2.pt", "checkpoint3.pt"]
    averaged = run_command(
        "visual-grounding", "average", "--checkpoint-dir", tmp_path / "run", "--last", 2, "--out", tmp_path / "mean"
    )
    assert averaged.returncode == 0, averaged.stderr
    states = [load_checkpoint(path)["model"] for path in paths]
    mean = load_checkpoint(tmp_path / "mean" / "averaged.pt")
    compared = 0
    for name, weight in mean["model"].items():
        torch.testing.assert_close(weight, (states[0][name] + states[1][name]) / 2)
        compared += 1
    assert compared == len(states[0]) > 20

    script = (
        "import sys; from visual_grounding.storage.checkpoints import count_parameters as count, load_checkpoint\n"
        "from fairseq import checkpoint_utils\n"
        "models, _ = checkpoint_utils.load_model_ensemble([sys.argv[1]])\n"
        "print(sum(p.numel() for p in models[0].parameters()), count(load_checkpoint(sys.argv[1])['model']))\n"
    )
    path = str(tmp_path / "mean" / "averaged.pt")
    loaded = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    expected, counted = map(int, loaded.stdout.split()[-2:])
    assert counted == expected > 1000

    translated = run_command(
        "fairseq-generate", tiny_translation / "bin", "--path", path, "--user-dir", user_dir, "--cpu",
        "--required-batch-size-multiple", 1,
    )  # fmt: skip
    assert translated.returncode == 0, translated.stderr
    (tmp_path / "generated").write_text(translated.stdout, encoding="utf-8")
    assert len(read_hypotheses(tmp_path / "generated")) == 12


def test_architecture_is_the_first_name_that_a_checkpoint_says() -> None:
    other = SimpleNamespace(_name=None, arch="vtlm")
    for model, args, named in (
        ({"_name": "vtlm"}, None, "vtlm"),
        ({"_name": ""}, None, None),
        ({"_name": 3}, None, None),
        (None, other, "vtlm"),
        (None, None, None),
    ):
        assert architecture({"cfg": {"model": model}, "args": args}) == named


def test_average_is_refused_when_weights_of_the_same_shapes_mean_something_else(tmp_path: Path) -> None:
    args = [argparse.Namespace(arch="transformer", encoder_attention_heads=heads) for heads in (2, 2, 4)]
    paths = [save(tmp_path / f"{n}.pt", {"w": torch.ones(1)}, args=each) for n, each in enumerate(args)]
    average_checkpoints(paths[:2])
    with pytest.raises(
        InputError, match=r"same --encoder-attention-heads, but .*1?\.pt was with 2, and .*2\.pt with 4"
    ):
        average_checkpoints(paths)


@pytest.mark.parametrize(("count", "sound"), [(0, True), (8, True), (-1, False), (True, False), (2.0, False)])
def test_numbers_that_a_checkpoint_remembers_are_counts(tmp_path: Path, count: Any, sound: bool) -> None:
    path = save(tmp_path / "a.pt", {"w": torch.ones(1)}, task_state={"images_per_sentence": count})
    if sound:
        load_checkpoint(path)
    else:
        with pytest.raises(InputError, match="how many images a sentence had, in a whole number"):
            load_checkpoint(path)
