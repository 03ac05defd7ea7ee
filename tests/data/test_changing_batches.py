"""Batches that know the epoch, and fairseq's workers, which hear of none once they run."""

import pytest
from masked_text import MaskedText, text_dataset

from visual_grounding.data.changing_batches import ChangingBatches


class Dated(ChangingBatches):
    """Batches that say in which epoch they were made."""

    def __init__(self, dataset, changes: bool) -> None:
        super().__init__(dataset)
        self._changes = changes

    @property
    def changes(self) -> bool:
        return self._changes


def test_epoch_reaches_the_dataset_and_what_it_wraps():
    dataset = Dated(Dated(MaskedText(text_dataset()), True), True)
    assert (dataset.epoch, dataset.dataset.epoch) == (1, 1)
    dataset.set_epoch(3)
    assert (dataset.epoch, dataset.dataset.epoch, dataset.dataset.dataset.epoch) == (3, 3, 3)


@pytest.mark.parametrize(("outer", "inner", "kept"), [(False, False, True), (True, False, False), (False, True, False)])
def test_workers_are_kept_where_neither_it_nor_what_it_wraps_changes(outer, inner, kept):
    assert Dated(Dated(text_dataset(), inner), outer).can_reuse_epoch_itr_across_epochs == kept


def test_a_subclass_has_to_say_whether_it_changes():
    with pytest.raises(NotImplementedError):
        _ = ChangingBatches(text_dataset()).can_reuse_epoch_itr_across_epochs
