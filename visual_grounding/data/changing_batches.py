"""Datasets whose batches may be new in every epoch: masked anew, or with other images."""

from fairseq.data import FairseqDataset

from .complete_batches import CompleteBatches


class ChangingBatches(CompleteBatches):
    """A dataset wrapper that knows the epoch.

    Args:
        dataset: any fairseq dataset.

    Attributes:
        epoch: counted from 1.
    """

    def __init__(self, dataset: FairseqDataset) -> None:
        super().__init__(dataset)
        self.epoch = 1

    @property
    def changes(self) -> bool:
        """Whether an item may be another one in another epoch: a subclass says so."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """fairseq says which epoch begins."""
        super().set_epoch(epoch)
        self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """False where items change: fairseq would keep the workers, which don't hear that another epoch begins."""
        return not self.changes and super().can_reuse_epoch_itr_across_epochs
