"""Workers of an epoch end before those of the next begin, without the garbage collector."""

import gc
import multiprocessing
import time
from argparse import Namespace
from typing import Any

import numpy as np
import pytest
from fairseq.data import FairseqDataset
from fairseq.tasks.fairseq_task import FairseqTask
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from visual_grounding.tasks.one_iterator import OneIterator


class Numbers(FairseqDataset):
    """Ten items, new in every epoch or not."""

    def __init__(self, changes: bool) -> None:
        super().__init__()
        self.changes, self.epoch, self.sizes = changes, 1, np.ones(10)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.epoch, index

    def collater(self, samples: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return samples

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        return np.ones(len(indices), dtype=np.int64)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return not self.changes


def test_an_empty_batch_has_no_loss() -> None:
    """`fairseq-validate` on several devices gives one to a process that has none left."""
    loss, size, logged = OneIterator(Namespace()).valid_step({}, None, None)
    assert (loss, size) == (0, 0) and set(logged.values()) == {0} and "sample_size" in logged


def epoch_of(task: Any, dataset: Numbers, epoch: int) -> list[tuple[int, int]]:
    itr = task.get_batch_iterator(dataset, max_sentences=5, num_workers=1, epoch=epoch, data_buffer_size=2)
    return [item for batch in itr.next_epoch_itr(shuffle=False) for item in batch]


def workers(expected: int) -> int:
    """Workers that are there; a machine that is busy has half a minute in which those that were told to end do."""
    deadline = time.monotonic() + 30
    while len(multiprocessing.active_children()) > expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return len(multiprocessing.active_children())


@pytest.fixture
def uncollected() -> Any:
    """Only what nobody refers to goes: nothing in a cycle does."""
    gc.collect()
    gc.disable()
    yield len(multiprocessing.active_children())
    for each in gc.get_objects():
        if type(each) is _MultiProcessingDataLoaderIter:
            each._shutdown_workers()  # what the collector does badly
    gc.enable()
    gc.collect()


def test_workers_of_earlier_epochs_have_ended(uncollected: int) -> None:
    task, dataset = OneIterator(Namespace()), Numbers(changes=True)
    task.datasets["train"] = dataset
    for epoch in (1, 2, 3):
        assert sorted(epoch_of(task, dataset, epoch)) == [(epoch, index) for index in range(10)]
        assert workers(uncollected + 1) == uncollected + 1
    for epoch in (4, 5):  # text in several folders, one an epoch
        task.datasets["train"] = Numbers(changes=True)
        assert len(epoch_of(task, task.datasets["train"], epoch)) == 10
        assert workers(uncollected + 1) == uncollected + 1
    task.datasets["valid"] = Numbers(changes=True)  # its iterator leaves the first one's alone
    assert len(epoch_of(task, task.datasets["valid"], 1)) == 10 and workers(uncollected + 2) == uncollected + 2
    for _ in range(2):  # fairseq-interactive's are of no split, and made in this process
        assert len(list(task.get_batch_iterator(Numbers(changes=True), max_sentences=5).next_epoch_itr())) == 2


def test_iterator_that_serves_every_epoch_keeps_its_workers(uncollected: int) -> None:
    task, dataset = OneIterator(Namespace()), Numbers(changes=False)
    task.datasets["train"] = dataset
    first = task.get_batch_iterator(dataset, max_sentences=5, num_workers=1)
    assert task.get_batch_iterator(dataset, max_sentences=5, num_workers=1, epoch=2) is first
    for _ in range(2):
        assert len(list(first.next_epoch_itr(shuffle=False))) == 2
    assert first.dataloader is not None and workers(uncollected + 1) == uncollected + 1


def test_fairseq_alone_leaves_them(uncollected: int) -> None:  # if not, this mixin is no longer needed
    task, dataset = FairseqTask(Namespace()), Numbers(changes=True)
    for epoch in (1, 2):
        epoch_of(task, dataset, epoch)
    assert len(multiprocessing.active_children()) == uncollected + 2


def test_every_task_here_is_one() -> None:
    from fairseq.tasks import TASK_REGISTRY

    own = {name: task for name, task in TASK_REGISTRY.items() if task.__module__.startswith("visual_grounding.")}
    assert len(own) >= 7 and [name for name, task in own.items() if not issubclass(task, OneIterator)] == []


def test_validating_on_training_text_leaves_the_iterator_that_trains_alone(uncollected: int) -> None:
    task, dataset = OneIterator(Namespace()), Numbers(changes=True)
    task.datasets["train"] = dataset
    for epoch in (1, 2):
        trains = task.get_batch_iterator(dataset, max_sentences=5, num_workers=1, epoch=epoch)
        batches = trains.next_epoch_itr(shuffle=False)
        first = next(batches)
        validates = task.get_batch_iterator(dataset, max_sentences=5, num_workers=1)
        assert len(list(validates.next_epoch_itr(shuffle=False, set_dataset_epoch=False))) == 2
        assert [item[0] for batch in (first, *batches) for item in batch] == [epoch] * 10
        assert trains.end_of_epoch()
