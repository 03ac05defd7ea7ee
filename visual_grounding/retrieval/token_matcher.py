"""The vokenizer that was trained here, `--arch token_image_matching` (VOK §3.2), as its folder holds it.

The folder is self-contained: `config.json`, `model.safetensors` (all weights, those of the frozen text encoder
included), and `text_encoder/` with that encoder's configuration and tokenizer, which a `TokenizerBridge` reads, too.
"""

from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from ..errors import InputError
from ..modules.token_image_matcher import TokenImageMatcher, TokenImageMatcherConfig
from ..storage.weights import read_weights
from ..text.pretrained_tokenizer import PretrainedTokenizer
from .retriever import Retriever, Tokenizer
from .retriever_folder import TEXT_ENCODER, WEIGHTS, Description, unusable, write_retriever, write_weights
from .trained_towers import AGAIN, build_with_text_encoder, check_architecture, load_towers, save_text_encoder

KIND = "token_matcher"


class TokenMatcherRetriever(Retriever):
    """Both sides of a token-image matcher with the encoder's tokenizer.

    As any retriever's, its sentences have a vector, too: the mean of their tokens', or that of their first piece.

    Args:
        folder, description, tokenizer, device: as `Retriever`.
        matcher: both sides.

    Attributes:
        sentence_level: whether it has a vector of a sentence alone, none of each token.
    """

    def __init__(
        self, folder: Path, description: Description, tokenizer: Tokenizer, matcher: TokenImageMatcher, device: str
    ) -> None:
        config = matcher.config
        sizes = (config.joint_size, config.image_feature_size)
        super().__init__(folder, description, tokenizer, *sizes, several_regions=None, device=device)
        self.sentence_level = config.sentence_level
        self.matcher = matcher.to(device).eval().requires_grad_(False)

    @classmethod
    def open(cls, folder: Path, description: Description, device: str) -> "TokenMatcherRetriever":
        """Load what `save_token_matcher` wrote.

        Raises:
            InputError: the folder isn't whole.
        """
        try:
            config = TokenImageMatcherConfig(**description.architecture)
            check_architecture(config, layers=("layers",))
        except (ValueError, TypeError) as error:
            raise unusable(folder, error) from error
        state = read_weights(folder / WEIGHTS, finite=True, remedy=AGAIN)
        tokenizer = PretrainedTokenizer(str(folder / TEXT_ENCODER))

        def build() -> TokenImageMatcher:
            return build_with_text_encoder(folder, lambda encoder: TokenImageMatcher(config, encoder))

        return cls(folder, description, tokenizer, load_towers(build, state, folder), device)

    def embed_tokens(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of the tokens of a batch of sentences, special pieces included; 0 at padding.

        Shapes:
            tokens: (B, T), padding_mask: (B, T), True = padding, on the device
            returns: (B, T, D) float32

        Raises:
            InputError: it matches sentences, not tokens.
        """
        if self.sentence_level:
            raise InputError(
                f"retriever {self.folder} should have a vector for each token, but was trained at sentence level, and "
                "has one for the whole sentence. Use one that was trained to match tokens."
            )
        return self.matcher.encode_tokens(tokens, padding_mask)

    def embed_text(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of sentences; 0 for one without a token.

        Shapes:
            tokens: (B, T);  padding_mask: (B, T)
            returns: (B, D) float32
        """
        return self.matcher.encode_text(tokens, padding_mask)

    def embed_images(self, features: Tensor, padding_mask: Tensor) -> Tensor:
        """Unit vectors of images; 0 for one without a region.

        Shapes:
            features: (B, R, F);  padding_mask: (B, R)
            returns: (B, D) float32
        """
        return self.matcher.encode_images(features, padding_mask)


def save_token_matcher(
    folder: Path,
    matcher: TokenImageMatcher,
    tokenizer: PretrainedTokenizer,
    signature: str,
    image_features: str | None = None,
) -> None:
    """Write a retriever's folder.

    Args:
        folder: its place; an older retriever there is replaced.
        matcher: both sides.
        tokenizer: of its encoder.
        signature: how it was trained.
        image_features: signature of the features that it learned from.

    Raises:
        InputError: the folder can't be written, or holds something else.
    """

    def write_files(beside: Path) -> None:
        save_text_encoder(beside, tokenizer, matcher.encoder)
        write_weights(beside, matcher.state_dict())

    write_retriever(folder, Description(KIND, asdict(matcher.config), signature, image_features), write_files)
