"""A dataset that asks finders, in a module of its own, so that a data loader's workers can import it."""

from collections.abc import Sequence

from torch.utils.data import Dataset

from visual_grounding.retrieval.finder import Finder, Found
from visual_grounding.retrieval.image_names import ImageNames


class Asking(Dataset):
    """Item n is what one of the finders finds for three lines, and what its images are called."""

    def __init__(self, finders: list[tuple[Finder, list[str]]]) -> None:
        self.asked = [
            (finder, lines[start : start + 3]) for finder, lines in finders for start in range(0, len(lines), 3)
        ]
        self.names = [ImageNames(finder.collection) for finder, _ in self.asked]

    def __len__(self) -> int:
        return len(self.asked)

    def __getitem__(self, item: int) -> tuple[Found, list[list[str]]]:
        finder, lines = self.asked[item]
        found = finder.find(lines)
        return found, [self.names[item].describe(*pair) for pair in zip(found.ids, found.scores)]


def same(items: Sequence) -> Sequence:
    """Collate by leaving all as it is."""
    return items
