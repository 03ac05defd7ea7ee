"""Vokens without a matcher: by term frequency, or at random (VOK Tables 5 and 6)."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from ..errors import InputError
from ..modules.masking import generator_of
from ..storage.lines import sha256_of_lines
from ..text.tokenizer_bridge import TokenizerBridge
from .candidates import Candidates
from .cutting import CutText
from .vokenizer import Labels, Vokenizer

TEMPERATURE = 0.01  # γ
_TOGETHER = 1000  # captions: what the tokenizer makes of them takes many times their memory, and is let go
_LARGEST_EXPONENT = 600.0  # exp of 709 is the largest in float64, and many are added up


class RandomVokenizer(Vokenizer):
    """Each piece gets any image, all equally probable; the same again for the same seed."""

    method = "random"
    scored: ClassVar[bool] = False

    def __init__(self, candidates: Candidates, seed: int = 1) -> None:
        self.candidates = candidates
        self.seed = seed
        self.plan = {"seed": seed}
        self.signed = {"seed": seed}

    def label_pieces(self, text: CutText, shard: int) -> Labels:
        """Vokens of a shard: (P,)."""
        drawn = generator_of(self.seed, shard).integers(len(self.candidates.keys), size=len(text))
        return Labels(drawn.astype(np.int32), None)


class TermFrequencyVokenizer(Vokenizer):
    """Each piece gets an image by chance, the likelier the more of the image's text is this piece (VOK §5.2).

        tf(tok, x) = #(tok, x) / Σ_tok' #(tok', x)
        p(x | tok) ∝ exp(tf(tok, x) / γ)

    # -> how often a piece occurs in all text of the image; γ -> `temperature`. All candidates take part, those without
    the piece, or without any text, with exp(0): what exp is beyond 1 is drawn apart, among the images that have it.

    Args:
        candidates: the images.
        captions: key and text, several of a key; of other images they are left out.
        bridge: the tokenizer that cuts both texts.
        temperature: γ.
        seed: of what is drawn.

    Raises:
        InputError: γ isn't positive or makes a weight infinite, or no candidate has a text.

    Attributes:
        described: how many candidates have a text.
    """

    method = "term-frequency"
    scored: ClassVar[bool] = False

    def __init__(
        self,
        candidates: Candidates,
        captions: Iterable[tuple[str, str]],
        bridge: TokenizerBridge,
        temperature: float = TEMPERATURE,
        seed: int = 1,
    ) -> None:
        if not temperature > 0:
            raise InputError(f"the temperature should be more than 0, but is {temperature}.", "temperature")
        self.candidates = candidates
        self.seed = seed
        number_of = {key: number for number, key in enumerate(candidates.keys)}
        counts: dict[int, Counter[int]] = defaultdict(Counter)
        texts = [(number_of[key], text) for key, text in captions if key in number_of]
        captions_sha256 = sha256_of_lines([f"{number}\t{text}" for number, text in texts])
        for start in range(0, len(texts), _TOGETHER):
            block = texts[start : start + _TOGETHER]
            for (image, _), pieces in zip(block, bridge.numbers_of(text for _, text in block)):
                counts[image].update(pieces)
        if not counts:
            raise InputError(
                f"some of the {len(candidates.keys)} candidates, such as {candidates.keys[0]!r}, should have captions, "
                "but none has.",
                "captions",
            )
        self.described = len(counts)
        self._weights = self._excess(counts, temperature)
        self.plan = {"seed": seed, "temperature": temperature, "captions_sha256": captions_sha256}
        self.signed = {"seed": seed, "temperature": temperature, "captions": captions_sha256[:8]}

    def _excess(self, counts: dict[int, Counter[int]], temperature: float) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """For each piece the images that have it, and the sums of exp(tf / γ) − 1 up to each."""
        images: dict[int, list[int]] = defaultdict(list)
        shares: dict[int, list[float]] = defaultdict(list)
        for image in sorted(counts):
            length = counts[image].total()
            for piece, count in counts[image].items():
                images[piece].append(image)
                shares[piece].append(count / length)
        largest = max(max(each) for each in shares.values()) / temperature
        if largest > _LARGEST_EXPONENT:
            raise InputError(
                f"the temperature should be at least {largest * temperature / _LARGEST_EXPONENT:.5f} for these "
                f"captions, as exp(tf / γ) is infinite otherwise, but is {temperature}.",
                "temperature",
            )
        return {
            piece: (np.array(images[piece]), np.cumsum(np.expm1(np.array(shares[piece]) / temperature)))
            for piece in images
        }

    def label_pieces(self, text: CutText, shard: int) -> Labels:
        """Vokens of a shard: (P,)."""
        rng = generator_of(self.seed, shard)
        total = len(self.candidates.keys)
        vokens = rng.integers(total, size=len(text)).astype(np.int32)  # as if no image had the piece
        draws = rng.random(len(text))
        order = np.argsort(text.numbers, kind="stable")
        pieces, starts = np.unique(text.numbers[order], return_index=True)
        for piece, places in zip(pieces.tolist(), np.split(order, starts[1:])):
            if piece not in self._weights:
                continue
            images, sums = self._weights[piece]
            at = draws[places] * (total + sums[-1])  # of V times 1, and what the images have beyond 1
            beyond = at < sums[-1]
            vokens[places[beyond]] = images[np.searchsorted(sums, at[beyond], side="right")]
        return Labels(vokens, None)
