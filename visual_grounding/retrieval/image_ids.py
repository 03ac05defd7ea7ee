"""Image ids: which images go with each sentence.

The table that every way of finding images writes and every model reads.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..features.store import FeatureStore
from ..shares import percent
from ..storage.artefact import check_array_whole, open_array, read_meta
from ..storage.lines import sha256_of_lines
from ..text.resemblance import UNLIKE, mean_share, of_strangers, places, shares_in_common, strangers

IMAGE_IDS = "image-ids"
NO_IMAGE = -1
AROUND = 2  # symbols that a model puts around the pieces of a line


class TableMask:
    """The mask that a table of image ids was made with.

    Args:
        pieces: of `MaskedQueries`.
        mask: likewise.
        symbols_sha256: of the symbols of the dictionary whose pieces they are.
        probability: that a piece is hidden.
        max_pieces: of a line that images were found for, `AROUND` included; None: of whole lines.

    Shapes:
        pieces: (S,);  mask: (S, W)
    """

    def __init__(
        self,
        pieces: np.ndarray,
        mask: np.ndarray,
        symbols_sha256: str,
        probability: float,
        max_pieces: int | None = None,
    ) -> None:
        self.pieces = pieces
        self.mask = mask
        self.symbols_sha256 = symbols_sha256
        self.probability = probability
        self.max_pieces = max_pieces

    def tells_what_stands_behind(self, max_pieces: int) -> int:
        """Of how many lines images were found by words behind those that a model reads, where hidden ones may stand.

        Args:
            max_pieces: that it reads of a line, `AROUND` included.
        """
        if self.max_pieces is not None and self.max_pieces <= max_pieces:
            return 0
        return int((self.pieces > max_pieces - AROUND).sum())

    def hidden(self, line: int) -> np.ndarray:
        """Which pieces of a line are hidden; none behind those that the mask has room for.

        Shapes:
            returns: (T,) bool

        Raises:
            InputError: the table was cut short since it was opened.
        """
        check_array_whole(self.pieces)
        check_array_whole(self.mask)
        hidden = np.zeros(int(self.pieces[line]), dtype=bool)
        found = np.unpackbits(self.mask[line])[: len(hidden)]
        hidden[: len(found)] = found
        return hidden


class ImageIds:
    """Row numbers in a feature store, for each of S sentences at most N, best first.

    Attributes:
        ids: (S, N) int32, memory-mapped; −1 = none.
        scores: (S, N) float16, memory-mapped; what the method ranked by.
        keys_sha256: the collection that the rows belong to.
        text_sha256: of the sentences that images were found for; None where the method read none.
        counts: what the method had to say about its sentences, e.g. how many were empty.
        mask: of the words that were hidden from the finder; None where it saw all.
        recall: of an approximate search: the share of the N nearest images that it found, on a sample; else None.

    Raises:
        InputError: the folder isn't a whole table.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        counts = {"sentences": int, "images_per_sentence": int}
        meta = read_meta(self.folder, IMAGE_IDS, **counts, keys_sha256=str, text_sha256=str | None, signature=str)
        self.signature: str = meta["signature"]
        self.keys_sha256: str = meta["keys_sha256"]
        self.text_sha256: str | None = meta.get("text_sha256")
        said = meta.get("counts")
        # 0 for what it doesn't say
        self.counts: dict[str, int] = Counter(
            {name: n for name, n in said.items() if isinstance(n, int)} if isinstance(said, dict) else {}
        )
        recall = meta.get("recall")
        self.recall: float | None = float(recall) if isinstance(recall, int | float) else None
        sketches = meta.get("text_sketches")  # version 0.1.0 wrote none
        self._sketches = [str(each) for each in sketches] if isinstance(sketches, list) else []
        shape = (meta["sentences"], meta["images_per_sentence"])
        self.ids = open_array(self.folder / "ids.npy", shape, "int32")
        self.scores = open_array(self.folder / "scores.npy", shape, "float16")
        self.mask: TableMask | None = None
        if "mask_prob" in meta:
            fields = {"mask_bytes": int, "mask_prob": float, "symbols_sha256": str}
            said = read_meta(self.folder, IMAGE_IDS, **fields)
            pieces = open_array(self.folder / "pieces.npy", shape[:1], "int32")
            mask = open_array(self.folder / "mask.npy", (shape[0], said["mask_bytes"]), "uint8")
            most = read_meta(self.folder, IMAGE_IDS, mask_max_pieces=int | None).get("mask_max_pieces")
            self.mask = TableMask(pieces, mask, said["symbols_sha256"], said["mask_prob"], most)

    def __len__(self) -> int:
        return self.ids.shape[0]

    def likeness(self, candidates: Callable[[int], Iterable[str]]) -> tuple[float | None, list[int]]:
        """How much a text of as many lines resembles the one that images were found for, told from a few lines.

        Args:
            candidates: a line's number -> what might be that line, such as source and target.

        Returns:
            0..1, or None where the table doesn't say what its text was like; and which of these lines are others, where
            the text is the same but for them.
        """
        numbers = places(len(self))
        shares = shares_in_common(self._sketches[: len(numbers)], lambda place: candidates(numbers[place]))
        return mean_share(shares), [numbers[place] for place in strangers(shares)]

    def doubt(self, text: list[str], place: object) -> str | None:
        """What there is to say where images may have been found for another text; None where all is well.

        Args:
            text: as many lines.
            place: where it stands.
        """
        if self.text_sha256 in (None, sha256_of_lines(text)):
            return None
        alike, other = self.likeness(lambda line: [text[line]])
        if alike is None:
            return f"{self.folder} was made for another text than {place}, or for that one written differently."
        if alike < UNLIKE:
            return (
                f"{self.folder} was made for another text than {place}, of as many lines: a sample of them is "
                f"{percent(alike)} alike."
            )
        return f"{self.folder} was made for another text than {place}: {of_strangers(other)}" if other else None

    def check_against(self, store: FeatureStore) -> None:
        """Refuse ids that were made from another collection than `store`.

        Raises:
            InputError: other keys, or a row that the store doesn't have.
        """
        highest, lowest = int(self.ids.max(initial=NO_IMAGE)), int(self.ids.min(initial=NO_IMAGE))
        if self.keys_sha256 == store.keys_sha256:
            if lowest >= NO_IMAGE and highest < len(store):
                return
            raise InputError(
                f"image ids in {self.folder} refer to row {highest if highest >= len(store) else lowest}, but they "
                f"should be rows 0..{len(store) - 1} of feature store {store.folder}, or {NO_IMAGE} for no image: "
                "somebody changed them. Delete them, and make them again with: visual-grounding retrieve … "
                f"--out {self.folder}"
            )
        problem = (
            f"image ids in {self.folder} refer to row {highest}, but feature store {store.folder} has {len(store)} "
            f"images (rows 0..{len(store) - 1})"
            if highest >= len(store)
            else f"image ids in {self.folder} don't belong to feature store {store.folder}"
        )
        raise InputError(
            f"{problem}. They were made from different collections: keys sha256 {self.keys_sha256[:8]}… ≠ "
            f"{store.keys_sha256[:8]}…. Name the store that they are of, or make ids of this one with: "
            "visual-grounding retrieve … --out DIR"
        )

    def check_lines(self, lines: int, text: str) -> None:
        """Refuse ids for another number of sentences.

        Raises:
            InputError: `text` has another number of sentences than this table has rows.
        """
        if lines != len(self):
            raise InputError(
                f"{text} has {lines} sentences, but image ids in {self.folder} have {len(self)} rows. "
                "Name the table of this text, or make one with: visual-grounding retrieve --text FILE … --out DIR"
            )
