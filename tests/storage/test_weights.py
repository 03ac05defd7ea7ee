"""The one strict loader: what it reads, and what it says of files that don't fit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from visual_grounding.errors import InputError
from visual_grounding.storage.weights import check_weights_fit, load_strictly, read_weights, sha256_of_state


@pytest.fixture
def model() -> nn.Module:
    """A network with parameters, fractions and whole numbers."""
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def save(path: Path, content: object) -> Path:
    if path.suffix == ".safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin", ".safetensors"])
def test_weights_come_back_from_every_kind_of_file(suffix: str, model: nn.Module, tmp_path: Path) -> None:
    state = read_weights(save(tmp_path / f"w{suffix}", dict(model.state_dict())), finite=True)
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert sha256_of_state(other) != sha256_of_state(model)
    load_strictly(other, state, tmp_path, "a pair")
    assert sha256_of_state(other) == sha256_of_state(model)


class Hostile:
    """A pickle that would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.pth", None, r"gone\.pth should be a state_dict \(\.pth, \.pt, \.bin, .*, but doesn't exist"),
        ("folder.pt", "folder", r"folder\.pt should be a state_dict .*but isn't a file"),
        ("w.pth", b"garbage", r"w\.pth should be a state_dict of plain tensors, but can't be read: it is no file of"),
        ("w.safetensors", b"garbage", r"w\.safetensors should be a state_dict of plain tensors, but can't be read: \S"),
        ("w.bin", [1], r"w\.bin should be a state_dict \(name -> tensor\), but is a list"),
        ("w.pt", {"model": {}}, r"w\.pt should be a state_dict \(name -> tensor\), but is a dict with 'model'"),
        ("w.pt", {"a": torch.tensor(torch.nan), "b": torch.zeros(1), "c": torch.tensor([1, torch.inf])},
         r"w\.pt should hold finite weights, but 2 of 3 have NaN or infinity \(a, c\)"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_with_the_next_command(
    name: str, content: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        save(path, content)
    with pytest.raises(InputError, match=message + r".*\. Copy it again\.$"):
        read_weights(path, finite=True, remedy="Copy it again.")
    with pytest.raises(InputError, match=r"^--weights x"):
        read_weights(path, "--weights x", finite=True)


def test_weights_that_are_not_finite_are_read_where_that_is_not_asked(tmp_path: Path) -> None:
    assert read_weights(save(tmp_path / "w.pt", {"mask": torch.tensor([-torch.inf])}))["mask"].item() == -torch.inf


def test_a_file_never_runs_code(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"can't be read: it asks to run \w+\.mkdir, which wasn't done"):
        read_weights(save(tmp_path / "w.pth", {"w": Hostile(tmp_path / "made")}))
    assert not (tmp_path / "made").exists()


def test_weights_that_do_not_fit_are_counted_and_named(model: nn.Module) -> None:
    state = dict(model.state_dict())
    del state["0.bias"]
    state |= {
        "0.weight": torch.zeros(4, 3),
        "1.running_mean": torch.zeros(2, dtype=torch.int8),
        **{f"more.{i}": torch.zeros(1) for i in range(4)},
    }
    with pytest.raises(
        InputError,
        match=r"^w\.pt should hold the 7 weights of a pair, but has 1 missing \(0\.bias\), 4 superfluous \(more\.0, "
        r"more\.1, more\.2, …\), 1 of another shape \(0\.weight is \(4, 3\), not \(2, 3\)\), 1 of another type "
        r"\(1\.running_mean is torch\.int8, not torch\.float32\)\. Take another\.$",
    ):
        load_strictly(model, state, "w.pt", "a pair", "Take another.")


def test_nothing_is_loaded_from_weights_that_do_not_fit(model: nn.Module) -> None:
    before = sha256_of_state(model)
    with pytest.raises(InputError, match="1 superfluous"):
        load_strictly(model, {**model.state_dict(), "0.weight": torch.ones(2, 3), "x": torch.ones(1)}, "w", "a pair")
    assert sha256_of_state(model) == before


def test_weights_from_before_torch_counted_batches_load(model: nn.Module) -> None:
    state = {name: weight + 1 for name, weight in model.state_dict().items() if "num_batches" not in name}
    load_strictly(model, state, "old.pth", "a pair")
    check_weights_fit(model.state_dict(), state, "old.pth", "a pair")
    loaded = model.state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in state.items())
    assert set(loaded) - set(state) == {"1.num_batches_tracked"}


def test_weights_of_half_precision_fit_and_assigned_ones_claim_no_memory(model: nn.Module) -> None:
    halves = {name: w.half() if w.is_floating_point() else w for name, w in model.state_dict().items()}
    load_strictly(model, halves, "half.pt", "a pair")
    assert model[0].weight.dtype == torch.float32
    with torch.device("meta"):
        planned = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    load_strictly(planned, halves, "half.pt", "a pair", assign=True)
    assert planned[0].weight.data_ptr() == halves["0.weight"].data_ptr()


def test_a_pickle_that_the_safe_loader_does_not_know_is_to_be_saved_again(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pth", pickle_protocol=4)
    with pytest.raises(
        InputError, match=r"doesn't know its kind of pickle: save it again, as torch\.save does by itself"
    ):
        read_weights(tmp_path / "w.pth")
