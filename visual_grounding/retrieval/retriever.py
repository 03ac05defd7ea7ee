"""A retriever: sentences and images to unit vectors of one space; what every kind offers, and where a kind is found.

Indexes, searches, heat maps and the doctor speak to this class alone. A folder's `config.json` names its kind, and
`Retriever.load` looks it up: one of `KINDS`, or `package.module:Name` from outside this package. A new kind is a class
that loads itself and embeds a batch of each side. It needs torch, not fairseq.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from ..devices import choose_device
from ..errors import InputError, check_at_least_one
from ..extensions import class_named
from ..features.making import check_making, says_what_made
from ..features.pixels import PixelSource
from ..features.store import FeatureStore
from .retriever_folder import CONFIG, FILES, Description, read_description, sha256_of_files

# Imported when a folder asks for it: a dual encoder needs torchvision and transformers, others don't.
KINDS = {
    "joint_embedding": "visual_grounding.retrieval.joint_embedding:JointEmbeddingRetriever",
    "dual_encoder": "visual_grounding.retrieval.dual_encoder:DualEncoderRetriever",
    "token_matcher": "visual_grounding.retrieval.token_matcher:TokenMatcherRetriever",
}
# Features of one network, whatever was made of its map and however large a picture it saw.
_NOT_THE_NETWORK = ("preprocessing", "pool", "grid", "precision")


class Tokenizer(Protocol):
    """Sentences to numbers. A tokenizer that derives from it needs only `encode`, where it has no unknown words.

    Attributes:
        pad: number that fills a sentence up in a batch.
        max_tokens: longer sentences are cut here.
    """

    pad: int
    max_tokens: int

    def encode(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Numbers of each sentence's tokens, and how many sentences were cut."""
        ...

    def count_known(self, tokens: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """How many words or pieces each sentence has, and how many of them aren't just the symbol for unknown ones.

        Shapes:
            returns: words (S,), known words (S,)
        """
        words = np.array([len(sentence) for sentence in tokens], dtype=np.int64)
        return words, words


class Retriever(ABC):
    """Both sides of a joint space, in evaluation mode.

    A kind implements `open`, `embed_text` and `embed_images`; where it can say where in a picture a text is, also
    `embed_cells`, and `has_cells`.

    Args:
        folder: where it was loaded from.
        description: what its `config.json` says.
        tokenizer: of its text side.
        joint_size: D.
        image_feature_size: F, of the features that it takes.
        several_regions: whether an image has several regions, or 1; None where it may have any number.
        preprocessing: of its own image network, where it takes pixels instead of features.
        device: where it computes.

    Attributes:
        kind: as its folder says it.
        signature: how it was trained.
        image_features: signature of the features that it learned from; None where that isn't known, or it takes pixels.
        max_tokens: longer sentences are cut here.
        sha256: digest of its files: its identity. Others in its folder, a README say, don't count.
        files: names of its files and folders.
        features_may_differ_in: fields of the features' signature that it doesn't depend on.
        has_cells: whether `embed_cells` works.
    """

    files: ClassVar[Sequence[str]] = FILES
    features_may_differ_in: ClassVar[Sequence[str]] = ()
    has_cells = False

    def __init__(
        self,
        folder: Path,
        description: Description,
        tokenizer: Tokenizer,
        joint_size: int,
        image_feature_size: int,
        several_regions: bool | None = False,
        preprocessing: Any = None,
        device: str = "cpu",
    ) -> None:
        self.folder = folder
        self.kind = description.kind
        self.signature = description.signature
        self.image_features = description.image_features
        self.tokenizer = tokenizer
        self.max_tokens = tokenizer.max_tokens
        self.joint_size = joint_size
        self.image_feature_size = image_feature_size
        self.several_regions = several_regions
        self.preprocessing = preprocessing
        self.device = device
        self.sha256 = sha256_of_files(folder, self.files)

    @staticmethod
    def load(folder: str | Path, device: str = "cpu") -> "Retriever":
        """Load a retriever's folder, whatever kind it is.

        Raises:
            InputError: the folder isn't a whole retriever, its kind isn't known here, or there is no such device.
        """
        folder, device = Path(folder), str(choose_device(device))
        description = read_description(folder)
        wanted = f"{folder / CONFIG}: kind"
        kind = class_named(description.kind, KINDS, "retrievers", Retriever, wanted)  # type: ignore[type-abstract]
        before = sha256_of_files(folder, kind.files)
        found = kind.open(folder, description, device)
        if found.sha256 != before:  # it would bear the name of weights that it hasn't
            raise InputError(f"{folder} should stay as it is while it is loaded, but was changed. Load it again.")
        return found

    @classmethod
    @abstractmethod
    def open(cls, folder: Path, description: Description, device: str) -> "Retriever":
        """Load one of this kind.

        Raises:
            InputError: the folder isn't whole.
        """

    @abstractmethod
    def embed_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of a batch of sentences; 0 for one without a token.

        Shapes:
            tokens: (B, T), padding_mask: (B, T), True = padding, on the device
            returns: (B, D) float32
        """

    @abstractmethod
    def embed_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of a batch of images; 0 for one without a region.

        Shapes:
            features: (B, R, F) float32, or pixels (B, H, W, 3) uint8, on the device
            padding_mask: (B, R), for pixels (B, 1), True = absent
            returns: (B, D) float32
        """

    def embed_cells(self, features: Tensor) -> Tensor:
        """Each region by itself, as if the picture were nothing else; not normalised.

        Shapes:
            features: (B, R, F) float32, on the device
            returns: (B, R, D)

        Raises:
            InputError: this kind can't.
        """
        raise self._without_cells()

    @property
    def takes_pixels(self) -> bool:
        """Whether it sees the images themselves, with a network of its own, instead of features."""
        return self.preprocessing is not None

    @property
    def why_unchecked(self) -> str:
        """Why it can't tell features of another making from all others; empty where it can, or takes pixels."""
        if self.takes_pixels or (self.image_features is not None and says_what_made(self.image_features)):
            return ""
        why = (
            "doesn't say how the features that it was trained on were made (those trained and exported now do)"
            if self.image_features is None
            else "was trained on imported features that don't say what made them (those imported now do)"
        )
        return f"retriever {self.folder} {why}, so others of the same size aren't noticed."

    def check_store(self, store: FeatureStore | PixelSource, features_unchecked: bool = False) -> None:
        """Refuse images that this retriever doesn't know: of another size, or features of another making.

        Args:
            store: the images.
            features_unchecked: take features of another making, as long as they have the right size.

        Raises:
            InputError: pixels instead of features or the other way round, another size, or features of another making.
        """
        self._check_form(isinstance(store, PixelSource))
        if isinstance(store, PixelSource):
            return
        if not features_unchecked:
            self.check_making(store)
        self._check_size(store.num_regions, store.feature_size)

    def check_cells(self, store: FeatureStore, features_unchecked: bool = False) -> None:
        """Refuse a store whose regions this retriever can't look at one by one.

        They may be cells of the network whose mean it learned from, and the network may see larger pictures; pooling of
        a network's own is more than a mean, so its cells aren't what the retriever learned from.

        Args:
            store: the regions.
            features_unchecked: take features of another making, as long as they have the right size.

        Raises:
            InputError: it can't look at regions at all, theirs have another size, or are of another network.
        """
        if not self.has_cells:
            raise self._without_cells()
        if not features_unchecked and self.image_features is not None:
            own = "|pool:own|"
            apart_from = () if own in self.image_features or own in store.signature else _NOT_THE_NETWORK
            check_making(store, self.image_features, f"retriever {self.folder}", apart_from)
        self._check_cell_size(store.feature_size)

    def check_making(self, store: FeatureStore) -> None:
        """Refuse features that were made otherwise than those that it learned from; without a memory it takes all.

        Raises:
            InputError: they were.
        """
        if self.image_features is not None:
            check_making(store, self.image_features, f"retriever {self.folder}", self.features_may_differ_in)

    def tokenize(self, sentences: list[str]) -> tuple[list[list[int]], int]:
        """Token numbers of each sentence, and how many sentences were cut at `max_tokens`."""
        return self.tokenizer.encode(sentences)

    @torch.inference_mode()
    def encode_tokens(self, tokens: Sequence[Sequence[int]], batch_size: int = 256) -> Tensor:
        """Unit vectors of tokenised sentences; 0 for one without a token. Sentences of similar length share a batch.

        Shapes:
            returns: (S, D) float32, on the CPU
        """
        vectors = torch.zeros(len(tokens), self.joint_size)
        order = sorted(range(len(tokens)), key=lambda sentence: len(tokens[sentence]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            lengths = torch.tensor([len(tokens[sentence]) for sentence in chosen])
            batch = torch.full((len(chosen), max(1, int(lengths.max()))), self.tokenizer.pad)  # (B, T)
            for row, sentence in enumerate(chosen):
                batch[row, : len(tokens[sentence])] = torch.tensor(tokens[sentence], dtype=torch.long)
            padding_mask = torch.arange(batch.shape[1]) >= lengths.unsqueeze(1)
            vectors[chosen] = self.embed_text(batch.to(self.device), padding_mask.to(self.device)).cpu()
        return vectors

    @torch.inference_mode()
    def encode_text(self, sentences: Iterable[str], batch_size: int = 256) -> Tensor:
        """Unit vectors of sentences; 0 for an empty one.

        Shapes:
            returns: (S, D) float32, on the CPU

        Raises:
            InputError: one sentence instead of several, whose letters would be taken for sentences; something among
                them that isn't text, or a batch size below 1.
        """
        if isinstance(sentences, str):
            raise InputError(f"encode_text takes a list of sentences, but was given one: [{sentences[:40]!r}]?")
        check_at_least_one(batch_size=batch_size)
        sentences = list(sentences)
        for number, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                raise InputError(
                    f"encode_text takes sentences, but number {number} is {sentence!r:.80}, of type "
                    f"{type(sentence).__name__}."
                )
        sentences = list(map(str, sentences))  # numpy has a kind of its own
        vectors = self.encode_tokens(self.tokenize(sentences)[0], batch_size)
        empty = torch.tensor([not sentence.strip() for sentence in sentences], dtype=torch.bool)
        vectors[empty] = 0.0  # an encoder may put special tokens around nothing
        return vectors

    @torch.inference_mode()
    def encode_images(self, features: Tensor | np.ndarray, padding_mask: Tensor | np.ndarray) -> Tensor:
        """Unit vectors of images; 0 for one without a region.

        Shapes:
            features: (I, R, F), or pixels (I, H, W, 3) uint8 where the retriever has an image network
            padding_mask: (I, R), for pixels (I, 1), True = absent
            returns: (I, D) float32, on the CPU

        Raises:
            InputError: features of another size than the retriever was trained on, or pixels where it takes features;
                or a shape that isn't one of these.
        """
        features, padding_mask = torch.as_tensor(features), torch.as_tensor(padding_mask)
        pixels = features.dtype == torch.uint8
        wanted = (len(features), 1) if pixels and features.dim() == 4 else features.shape[:2]
        if features.dim() != 3 + pixels or padding_mask.shape != wanted:
            raise InputError(
                "encode_images takes features (I, R, F) and a padding mask (I, R), or pixels (I, H, W, 3) of uint8 and "
                f"a mask (I, 1), but was given {tuple(features.shape)} and {tuple(padding_mask.shape)}."
            )
        self._check_form(pixels)
        features = features.to(self.device)
        if not pixels:
            self._check_size(*features.shape[1:])
            features = features.float()
        return self.embed_images(features, padding_mask.to(self.device)).cpu()

    @torch.inference_mode()
    def encode_cells(self, features: Tensor) -> Tensor:
        """Each region by itself through the image side, as if the picture were nothing else; not normalised.

        Shapes:
            features: (I, R, F)
            returns: (I, R, D) float32, on the CPU

        Raises:
            InputError: features of another size than the retriever was trained on, or it can't look at regions.
        """
        if not self.has_cells:
            raise self._without_cells()
        self._check_cell_size(features.shape[2])
        return self.embed_cells(features.to(self.device).float()).float().cpu()

    def _check_form(self, pixels: bool) -> None:
        if pixels != self.takes_pixels:
            if self.takes_pixels:
                needs, flag = "with its image network, so it needs the images themselves, not their features", "images"
            else:
                needs, flag = "on features, so it needs the features of the images, not the images", "image_features"
            raise InputError(f"retriever {self.folder} was trained {needs}.", flag)

    def _check_size(self, regions: int, size: int) -> None:
        if size != self.image_feature_size or self.several_regions not in (None, regions > 1):
            wanted = {True: "several regions", False: "1 region", None: "any regions"}[self.several_regions]
            raise InputError(
                f"retriever {self.folder} was trained on images of {wanted} with {self.image_feature_size} numbers, "
                f"but these have {regions} with {size}. Use the features that it was trained on."
            )

    def _check_cell_size(self, size: int) -> None:
        if size != self.image_feature_size:
            raise InputError(
                f"retriever {self.folder} was trained on regions with {self.image_feature_size} numbers, but these "
                f"have {size}. Use a grid of the features that it was trained on."
            )

    def _without_cells(self) -> InputError:
        takes = "pictures" if self.takes_pixels else "images as a whole"
        return InputError(
            f"retriever {self.folder} should project each region of an image, but takes {takes}. Use one that was "
            "trained on the regions of a feature store."
        )
