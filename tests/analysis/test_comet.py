"""COMET is a package of others: here a stand-in is imported by its name, and without it nothing is computed."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from visual_grounding.analysis.comet import Comet, why_not
from visual_grounding.errors import InputError


class StandIn(ModuleType):
    """unbabel-comet as far as it is called: a sentence's score is the share of its words that the reference has."""

    def __init__(self) -> None:
        super().__init__("comet")
        self.__spec__ = ModuleSpec("comet", None)
        self.loaded: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def load_from_checkpoint(self, path: str) -> "StandIn":
        self.loaded.append(path)
        if "broken" in Path(path).read_text():
            raise RuntimeError("invalid magic number;\ncorrupt file?")
        return self

    def predict(self, samples: list[dict[str, str]], **options: Any) -> SimpleNamespace:
        self.calls.append({"samples": samples, **options})
        scores = []
        for sample in samples:
            words = sample["mt"].split()
            scores.append(sum(word in sample["ref"].split() for word in words) / max(len(words), 1))
        return SimpleNamespace(scores=scores, system_score=float(np.mean(scores)))


def install(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Let `import comet` find the stand-in."""
    module = StandIn()
    monkeypatch.setitem(sys.modules, "comet", module)
    return module


def write_model(folder: Path, content: str = "weights") -> Path:
    """A model's folder."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints/model.ckpt").write_text(content)
    return folder


def test_comet_gets_source_translation_and_reference_and_gives_a_score_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, folder = install(monkeypatch), write_model(tmp_path / "model")
    model = Comet(folder)
    assert module.loaded == [str(folder / "checkpoints/model.ckpt")]
    assert model.score(["a", "b"], ["x y", "z"], ["x", "z z"]).tolist() == [0.5, 1.0]
    (call,) = module.calls
    assert call["samples"] == [{"src": "a", "mt": "x y", "ref": "x"}, {"src": "b", "mt": "z", "ref": "z z"}]
    assert call["gpus"] in (0, 1) and call["batch_size"] == 8
    with pytest.raises(ValueError, match="argument 3 is shorter"):
        model.score(["a", "b"], ["x y", "z"], ["x"])
    Comet(folder / "checkpoints/model.ckpt")
    assert module.loaded[1] == module.loaded[0]


def test_comet_without_its_package_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not("model") == "unbabel-comet isn't installed: pip install unbabel-comet"
    install(monkeypatch)
    assert why_not("model") is None
    assert why_not(None) == "no model is named"


def test_a_comet_model_that_is_not_there_or_broken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(
        InputError, match=r"a folder with checkpoints/model\.ckpt in it, but there is no file .*nowhere"
    ):
        Comet(tmp_path / "nowhere")
    with pytest.raises(
        InputError, match=r"should be a model of unbabel-comet, but .* invalid magic number; corrupt file\?"
    ):
        Comet(write_model(tmp_path / "model", "broken"))


@pytest.mark.parametrize(
    ("scores", "said"),
    [([0.5], r"of shape \(1,\), 0 of them"), ([0.5, float("nan")], r"of shape \(2,\), 1 of them not")],
)
def test_scores_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: list[float], said: str
) -> None:
    module = install(monkeypatch)
    monkeypatch.setattr(module, "predict", lambda *_, **__: SimpleNamespace(scores=scores))
    with pytest.raises(InputError, match=rf"a finite score for each of 2 sentences, but gives numbers {said}"):
        Comet(write_model(tmp_path / "model")).score(["a", "b"], ["x", "y"], ["x", "y"])
