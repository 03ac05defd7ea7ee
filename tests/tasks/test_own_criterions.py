"""Criterions of other tasks are refused before anything is trained."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.fairseq_task import FairseqTask

from visual_grounding.errors import InputError
from visual_grounding.tasks.own_criterions import OwnCriterions

OURS = {name for name, kind in CRITERION_REGISTRY.items() if kind.__module__.startswith("visual_grounding.")}
TASKS = {name: kind for name, kind in TASK_REGISTRY.items() if kind.__module__.startswith("visual_grounding.")}


def built(monkeypatch: pytest.MonkeyPatch, criterion: str, own: tuple[str, ...], fairseqs: bool) -> object:
    monkeypatch.setattr(FairseqTask, "build_criterion", lambda self, cfg, from_checkpoint: (cfg._name, from_checkpoint))
    task = OwnCriterions(SimpleNamespace(_name="mine"))  # type: ignore[arg-type]
    task.criterions, task.takes_fairseqs = own, fairseqs
    return task.build_criterion(Namespace(_name=criterion), True)


@pytest.mark.parametrize(
    ("criterion", "own", "fairseqs", "said"),
    [
        ("visual_tlm", ("visual_tlm",), False, None),
        (
            "visual_tlm",
            ("voken_classification",),
            False,
            "visual_tlm can't read the batches of --task mine",
        ),
        ("visual_tlm", ("cross_entropy",), True, r"visual_tlm can't .*: give --criterion cross_entropy\."),
        (
            "cross_entropy",
            ("masked_lm_with_paired_image",),
            False,
            r"cross_entropy \(fairseq's choice where none",
        ),
        ("masked_lm", ("a", "b"), False, r"--criterion masked_lm can't .* give --criterion a or b\."),
        ("cross_entropy", (), True, None),
    ],
)
def test_criterions_of_other_tasks_are_refused(monkeypatch, criterion, own, fairseqs, said):
    if said is None:
        assert built(monkeypatch, criterion, own, fairseqs) == (criterion, True)
        return
    with pytest.raises(InputError, match=said):
        built(monkeypatch, criterion, own, fairseqs)


def test_one_from_outside_is_left_to_itself(monkeypatch):
    monkeypatch.setitem(CRITERION_REGISTRY, "theirs", type("Theirs", (FairseqCriterion,), {"__module__": "elsewhere"}))
    assert built(monkeypatch, "theirs", ("visual_tlm",), False) == ("theirs", True)


def test_every_task_names_criterions_that_there_are_and_every_criterion_here_has_a_task():
    assert len(TASKS) >= 7 and all(issubclass(task, OwnCriterions) for task in TASKS.values())
    named = {name for task in TASKS.values() for name in task.criterions}
    named |= {"grounded_sentence_prediction", "grounded_tagging"}  # theirs depend on what is asked
    assert named <= set(CRITERION_REGISTRY) and named >= OURS
    assert [name for name, task in TASKS.items() if task.takes_fairseqs] == ["grounded_translation"]
