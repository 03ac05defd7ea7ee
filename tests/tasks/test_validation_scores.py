"""Any criterion that hands over what a task scores serves it; whatever the batches, each item counts once."""

from typing import ClassVar

import pytest
import torch
from fairseq.criterions import FairseqCriterion
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask

from visual_grounding.tasks.validation_scores import Scored, ValidationScores


def accuracy(values: dict[str, torch.Tensor]) -> dict[str, float]:
    assert values["id"].tolist() == sorted(set(values["id"].tolist()))
    return {"accuracy": float((values["guess"] == values["answer"]).float().mean()), "items": float(len(values["id"]))}


def longest(values: dict[str, torch.Tensor]) -> dict[str, float]:
    return {"longest": float(values["length"].max())}


class GuessingTask(ValidationScores):
    scored: ClassVar = {
        "guesses": Scored(values=("guess", "answer"), scores=("accuracy", "items"), score=accuracy),
        "lengths": Scored(
            values=("length",), scores=("longest",), score=lambda v: {"longest": float(v["length"].max())}
        ),
    }


class GuessingCriterion(FairseqCriterion):
    """Guesses whatever the model says; hands over the names that it is made with."""

    def __init__(self, task: FairseqTask, names: tuple[str, ...] = ("guesses", "lengths")) -> None:
        super().__init__(task)
        self.names = names

    def forward(self, model, sample, reduce=True):
        if not self.training:
            guess, answer, length = model(sample), sample["answer"], sample["answer"].half() + 1
            values = {"guesses": {"guess": guess, "answer": answer}, "lengths": {"length": length}}
            for name in self.names:
                self.task.collect(name, id=sample["id"], **values[name])
        return torch.tensor(0.0), 1, {"ntokens": 1, "nsentences": len(sample["id"]), "sample_size": 1}

    @classmethod
    def reduce_metrics(cls, logging_outputs):
        metrics.log_scalar("loss", 0.0)


class Model(torch.nn.Module):
    def forward(self, sample):
        return sample["id"] % 3


def batch(*ids: int) -> dict[str, torch.Tensor]:
    return {"id": torch.tensor(ids), "answer": torch.tensor(ids) % 2} if ids else {}


def validate(task, criterion, *batches: dict) -> dict[str, float]:
    with metrics.aggregate(new_root=True) as scores:
        for sample in batches:
            _, _, logged = task.valid_step(sample, Model(), criterion.eval())
            task.reduce_metrics([logged], criterion)
    return scores.get_smoothed_values()


@pytest.mark.parametrize("batches", [[(0, 1, 2, 3)], [(3,), (), (1, 0), (2, 3)]])
def test_scores_are_those_of_the_whole_split_whatever_the_batches(batches):
    """Items 0 to 3: guesses 0 1 2 0, answers 0 1 0 1."""
    task = GuessingTask(None)
    scores = validate(task, GuessingCriterion(task), *(batch(*ids) for ids in batches))
    assert (scores["accuracy"], scores["items"], scores["longest"]) == (0.5, 4.0, 2.0)
    assert not any(name.startswith("_") for name in scores)


def test_next_split_starts_from_nothing():
    task = GuessingTask(None)
    criterion = GuessingCriterion(task)
    validate(task, criterion, batch(0, 1, 2, 3))
    assert validate(task, criterion, batch(2, 3))["accuracy"] == 0.0


def test_training_collects_nothing(caplog):
    task = GuessingTask(None)
    task.collect("guesses", **{name: torch.zeros(2) for name in ("id", "guess", "answer")})
    assert task._open is None
    with metrics.aggregate(new_root=True) as scores:
        task.reduce_metrics([{"ntokens": 1, "nsentences": 1}], GuessingCriterion(task))
    assert "accuracy" not in scores.get_smoothed_values() and not caplog.text


def test_criterion_that_hands_over_less_warns_once_and_the_rest_is_scored(caplog):
    task = GuessingTask(None)
    scores = validate(task, GuessingCriterion(task, ("guesses",)), batch(0, 1), batch(2, 3))
    assert scores["accuracy"] == 0.5 and "longest" not in scores
    message = "GuessingCriterion hands over no lengths, so GuessingTask can't log longest"
    assert caplog.text.count(message) == 1


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("words", {"id": 2}, "GuessingTask scores guesses, lengths, but the criterion hands over 'words'"),
        ("lengths", {"id": 2, "size": 2}, r"should come with \['id', 'length'\], but comes with \['id', 'size'\]"),
        ("lengths", {"id": 2, "length": 3}, "one row an item in each of its values, but has {'id': 2, 'length': 3}"),
    ],
)  # fmt: skip
def test_values_that_the_task_does_not_score_are_refused(name, values, message):
    with pytest.raises(ValueError, match=message):
        GuessingTask(None).collect(name, **{key: torch.zeros(size) for key, size in values.items()})


def test_two_processes_bring_their_values_together(tmp_path):
    """Rank 1 has fewer batches, so fairseq gives it an empty one."""
    import torch.multiprocessing as processes

    processes.spawn(_validate_on_a_rank, args=(f"file://{tmp_path}/meet", str(tmp_path)), nprocs=2)
    scores = [(tmp_path / f"{rank}").read_text() for rank in (0, 1)]
    assert scores == ["0.5 4.0"] * 2


def _validate_on_a_rank(rank: int, meeting: str, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=meeting, world_size=2, rank=rank)
    task = GuessingTask(None)
    mine = [batch(0, 3), batch(1)] if rank == 0 else [batch(2), batch()]
    scores = validate(task, GuessingCriterion(task), *mine)
    with open(f"{folder}/{rank}", "w") as file:
        file.write(f"{scores['accuracy']} {scores['items']}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


class ReadingTask(ValidationScores):
    """Scores how many words were read in all, and who read most; not every criterion says the words."""

    scored: ClassVar = {
        "guesses": Scored(values=("guess", "answer"), scores=("accuracy", "items"), score=accuracy),
        "words": Scored(
            values=("words",), optional=True, scores=("read", "most"),
            score=lambda v: {"read": float(v["words"].sum()), "most": float(v["words"].shape[1])},
        ),
    }  # fmt: skip


def test_values_of_different_lengths_are_filled_up_with_zeros():
    task = ReadingTask(None)
    criterion = GuessingCriterion(task, ())
    with metrics.aggregate(new_root=True) as scores:
        for ids, words in (([0, 2], torch.ones(2, 3, 2)), ([1], torch.ones(1, 5, 2)), ([2], torch.ones(1, 1, 2))):
            task._open = {}
            task.collect("words", id=torch.tensor(ids), words=words.requires_grad_())
            assert not task._open["words"]["words"].requires_grad
            task._gathered, task._open = [task._open], None
            task.reduce_metrics([{"ntokens": 1, "nsentences": 1}], criterion)
    found = scores.get_smoothed_values()
    assert (found["read"], found["most"]) == (2 * (3 + 5 + 1), 5.0)  # item 2 counts once, as it was seen last


def test_criterion_may_leave_out_what_is_optional_without_a_word(caplog):
    task = ReadingTask(None)
    scores = validate(task, GuessingCriterion(task, ("guesses",)), batch(0, 1))
    assert scores["accuracy"] == 1.0 and "read" not in scores and not caplog.text
