"""Tasks whose batches are new in every epoch: the workers that made the last epoch's end before others begin.

fairseq makes another iterator then, and the last one stays in a cycle of references with its loader and its workers,
which wait for more, until Python's garbage collector happens to come by. It then takes the workers' queues first, so
that nobody tells them to end, and torch waits five seconds for each: a training of short epochs mostly waits.
"""

import weakref
from typing import Any

from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks import FairseqTask


class OneIterator(FairseqTask):
    """A task that has one iterator of a split at a time; a mixin, before the task that it derives from otherwise."""

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple[Any, Any, dict[str, Any]]:
        """Loss of a batch: 0 of an empty one, which fairseq-validate gives a process that has no batch left."""
        if not sample:
            return 0.0, 0, {"loss": 0.0, "ntokens": 0, "nsentences": 0, "sample_size": 0}
        return super().valid_step(sample, model, criterion)  # type: ignore[no-any-return]

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> EpochBatchIterator:
        """As fairseq's; an earlier iterator of this split is done with, unless it is the one that is returned.

        Of this split, not of this dataset: text in several folders is another dataset in every epoch. Where training
        text is also validated on, which is always asked for as in epoch 1, the iterator that trains goes on.
        """
        known: dict[str, weakref.ref[EpochBatchIterator]] = self.__dict__.setdefault("_iterators", {})
        split = next((name for name, each in self.datasets.items() if each is dataset), "")
        earlier = known[split]() if split in known else None
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        trains = split == getattr(self.cfg, "train_subset", "train")
        if trains and earlier is not None and earlier is not iterator and iterator.epoch <= earlier.epoch:
            dataset.set_epoch(earlier.epoch)
            return iterator
        if earlier is not None and earlier is not iterator:
            earlier.dataloader = earlier._cur_epoch_itr = earlier._next_epoch_itr = None
        if split:
            known[split] = weakref.ref(iterator)
        return iterator
