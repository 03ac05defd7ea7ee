"""What gives the pieces of a text their vokens: a trained matcher, token by token or sentence by sentence (VOK §3.1).

    v(w_i; s) = argmax over x of r(w_i, x; s)

r -> the inner product of a piece's vector in its sentence with an image's, x -> the candidates. The baselines of the
paper's Table 5 that need no matcher are in `baselines.py`.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError, check_at_least_one
from ..retrieval.index import Index
from ..retrieval.nearest import NearestImage
from ..retrieval.retriever_folder import TEXT_ENCODER
from ..retrieval.token_matcher import TokenMatcherRetriever
from ..text.tokenizer_bridge import TokenizerBridge
from ..text.words import PAD
from .candidates import Candidates
from .cutting import CutText

# Positions in a batch, padding included: what a small encoder's states need to stay in the cache; few large products.
BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
# Vectors that are searched at a time: on a CPU few, which take no memory; a GPU is waited for once for all of them.
_SEARCHED = {"cpu": 2**14, "cuda": 2**18}
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Labels(NamedTuple):
    """The vokens of some pieces.

    Shapes:
        vokens: (P,) int32;  scores: (P,) float32, None where there are none
    """

    vokens: np.ndarray
    scores: np.ndarray | None


class Vokenizer(ABC):
    """Gives every piece of a text a voken.

    Attributes:
        method: as on the command line.
        label: what a voken is chosen for, `token` or `sentence`.
        scored: whether there are scores.
        candidates: what vokens are numbers of.
        plan: JSON-ready; whatever decides the vokens, beside the candidates and the text.
        signed: what of that the signature names.
    """

    method: ClassVar[str]
    label: ClassVar[str] = "token"
    scored: ClassVar[bool] = True
    candidates: Candidates
    plan: dict[str, Any]
    signed: dict[str, object]

    @abstractmethod
    def label_pieces(self, text: CutText, shard: int) -> Labels:
        """Vokens of the pieces of a shard, the shard's number for what is drawn at random.

        Shapes:
            returns: (P,) each
        """


class _Matching(Vokenizer):
    """What both methods share that ask a matcher.

    Args:
        retriever: the matcher, on its device.
        index: the images in its space.
        candidates: some of them.
        batch_tokens: positions in a batch, padding included (default: by the device).
        precision: of the encoder; the last layers compute in float32.

    Raises:
        InputError: the index is of another matcher, or there is no such precision on this device.
    """

    def __init__(
        self,
        retriever: TokenMatcherRetriever,
        index: Index,
        candidates: Candidates,
        batch_tokens: int | None = None,
        precision: str = "float32",
    ) -> None:
        index.check_retriever(retriever)
        if batch_tokens is not None:
            check_at_least_one(batch_tokens=batch_tokens)
        device = torch.device(retriever.device)
        if device.type == "cpu" and precision == "float16":
            raise InputError("float16 needs a GPU; a CPU takes float32 or bfloat16.", "precision")
        self.retriever = retriever
        self.candidates = candidates
        self.device = device
        self.batch_tokens = batch_tokens or BATCH_TOKENS[device.type]
        images = index.embeddings[candidates.rows]  # (V, D)
        if not np.isfinite(images).all():
            raise InputError(
                f"{index.folder / 'embeddings.npy'} should hold unit vectors, but has NaN or infinity. Delete the "
                "index, and make it again with: visual-grounding index"
            )
        self._images = NearestImage(torch.from_numpy(images).to(device), device)
        self._dtype = PRECISIONS[precision]
        bridge = TokenizerBridge(str(retriever.folder / TEXT_ENCODER))
        ids = bridge.tokenizer_ids.copy()
        ids[PAD] = max(ids[PAD], 0)  # nobody looks at padding, but an embedding is looked up for it
        self._ids = torch.from_numpy(ids)
        self._around = bridge.opening, bridge.closing
        self.plan = {
            "retriever_sha256": retriever.sha256,
            "embeddings_sha256": hashlib.sha256(images.tobytes()).hexdigest(),
            "batch_tokens": self.batch_tokens,
            "precision": precision,
            "device": device.type,
        }
        self.signed = {"retriever": retriever.sha256[:8], "precision": precision}

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._dtype is None else torch.autocast(self.device.type, self._dtype)

    def _batches(self, text: CutText, windows: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
        """Windows of similar size, as many as a batch holds, each as the encoder reads it.

        Shapes:
            windows: (W',) which of the text's
            returns: windows (b,);  tokens (b, T) the tokenizer's numbers;  padding_mask (b, T), on the device
        """
        opening, closing = self._around
        around = len(opening) + len(closing)
        order = windows[np.argsort(-text.sizes[windows], kind="stable")]  # the longest first: too many fail at once
        start = 0
        while start < len(order):
            width = int(text.sizes[order[start]]) + around
            chosen = order[start : start + max(1, self.batch_tokens // width)]
            start += len(chosen)
            sizes = text.sizes[chosen][:, None]  # (b, 1)
            place = np.arange(width)[None]  # (1, T)
            inside = place - len(opening)
            pieces = text.numbers[np.minimum(text.starts[chosen][:, None] + inside.clip(0), len(text) - 1)]  # (b, T)
            tokens = np.where((inside >= 0) & (inside < sizes), pieces, PAD)
            for at, number in enumerate(opening):
                tokens[:, at] = number
            for after, number in enumerate(closing):
                np.put_along_axis(tokens, sizes + len(opening) + after, number, axis=1)
            yield (
                chosen,
                self._ids[torch.from_numpy(tokens).long()].to(self.device, non_blocking=True),
                torch.from_numpy(place >= sizes + around).to(self.device, non_blocking=True),
            )

    def _search(self, batches: Iterator[tuple[np.ndarray, Tensor]], count: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest candidate of each of so many vectors, which come batch by batch with their places.

        Shapes:
            batches: places (b,), vectors (b, D)
            returns: (count,) each
        """
        vokens, scores = np.zeros(count, np.int32), np.zeros(count, np.float32)
        waiting: list[tuple[np.ndarray, Tensor]] = []

        def find() -> None:
            if not waiting:
                return
            places = np.concatenate([each for each, _ in waiting])
            vectors = torch.cat([each for _, each in waiting])
            if not torch.isfinite(vectors).all():
                raise InputError(
                    f"{self.retriever.folder} should give vectors of numbers, but gives NaN or infinity"
                    + (f" in {self.plan['precision']}. Take float32." if self._dtype is not None else "."),
                    "precision",
                )
            score, number = self._images.of(vectors)
            vokens[places], scores[places] = number.numpy(), score.numpy()
            waiting.clear()

        for batch in batches:
            waiting.append(batch)
            if sum(len(places) for places, _ in waiting) >= _SEARCHED[self.device.type]:
                find()
        find()
        return vokens, scores


class TokenVokenizer(_Matching):
    """Each piece gets the image that is most similar to it in its sentence; `Args` as `_Matching`.

    Raises:
        InputError: as `_Matching`, or the matcher has a vector of a sentence alone.
    """

    method = "matching"

    def __init__(self, retriever: TokenMatcherRetriever, *args: Any, **options: Any) -> None:
        if retriever.sentence_level:
            raise InputError(
                f"method matching needs a vector of each token, but {retriever.folder} was trained with "
                "--sentence-level. Take method sentence.",
                "method",
            )
        super().__init__(retriever, *args, **options)

    @torch.inference_mode()
    def label_pieces(self, text: CutText, shard: int) -> Labels:
        """Vokens of a shard.

        Shapes:
            returns: (P,) each
        """
        return Labels(*self._search(self._vectors(text), len(text)))

    def _vectors(self, text: CutText) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Places and vectors of all pieces: (b,), (b, D)."""
        first = len(self._around[0])
        for chosen, tokens, padding_mask in self._batches(text, np.arange(len(text.starts))):
            with self._autocast():
                vectors = self.retriever.embed_tokens(tokens, padding_mask)  # (b, T, D)
            sizes = text.sizes[chosen]
            window, place = (np.arange(int(sizes.max()))[None] < sizes[:, None]).nonzero()
            at = torch.from_numpy(window * vectors.shape[1] + first + place).to(self.device, non_blocking=True)
            yield text.starts[chosen][window] + place, vectors.flatten(0, 1)[at]


class SentenceVokenizer(_Matching):
    """All pieces of a sentence get the image that is most similar to the sentence (Table 5: SentLabel, Propagated).

    Whether a model learns one label a sentence or a label a token from it is a choice of the model's training.
    Assumption: of a sentence in several windows the first one decides.
    """

    method = "sentence"
    label = "sentence"

    @torch.inference_mode()
    def label_pieces(self, text: CutText, shard: int) -> Labels:
        """Vokens of a shard.

        Shapes:
            returns: (P,) each
        """
        first_windows = np.unique(text.sentences, return_index=True)[1]
        vokens, scores = self._search(self._vectors(text, first_windows), text.counts["sentences"])
        of_piece = np.repeat(text.sentences, text.sizes)
        return Labels(vokens[of_piece], scores[of_piece])

    def _vectors(self, text: CutText, windows: np.ndarray) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Numbers and vectors of the sentences that these windows begin: (b,), (b, D)."""
        for chosen, tokens, padding_mask in self._batches(text, windows):
            with self._autocast():
                vectors = self.retriever.embed_text(tokens, padding_mask)
            yield text.sentences[chosen], vectors
