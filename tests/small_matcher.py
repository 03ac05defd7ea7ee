"""A small BERT with its tokenizer, and small untrained matchers of tokens and images."""

from pathlib import Path
from typing import Any

import torch

from visual_grounding.modules.sentence_encoders import load_pretrained_encoder
from visual_grounding.modules.token_image_matcher import TokenImageMatcher, TokenImageMatcherConfig
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.retrieval.token_matcher import save_token_matcher
from visual_grounding.text.pretrained_tokenizer import PretrainedTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = list("abcdefghijklmnopqrstuvwxyz")
SIZES = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}


def make_bert(folder: Path, words: list[str] = WORDS, positions: int = 16) -> Path:
    """A folder as transformers saves it: 3 layers of 8 random numbers, with dropout; each word is a piece."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder.mkdir(parents=True)
    (folder / "words.txt").write_text("".join(word + "\n" for word in [*SPECIAL, *words]), encoding="utf-8")
    BertTokenizerFast(str(folder / "words.txt"), model_max_length=positions).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(SPECIAL) + len(words), max_position_embeddings=positions, **SIZES)
    BertModel(config).save_pretrained(folder)
    return folder


def make_matcher(bert: Path, seed: int = 0, **choices: Any) -> TokenImageMatcher:
    """A matcher of random weights for images of 6 numbers."""
    sizes = {"layers": 2, "image_feature_size": 6, "joint_size": 8, "hidden_size": 5}
    encoder = load_pretrained_encoder(str(bert))
    torch.manual_seed(seed)
    return TokenImageMatcher(TokenImageMatcherConfig(**{**sizes, **choices}), encoder)


def make_token_matcher(folder: Path, seed: int = 0, image_features: str | None = "test", **choices: Any) -> Any:
    """Its exported folder, loaded; it says that it learned from a store of `conftest`."""
    bert = folder.with_name(f"{folder.name}-bert")
    if not bert.exists():
        make_bert(bert)
    save_token_matcher(
        folder, make_matcher(bert, seed, **choices), PretrainedTokenizer(str(bert)), f"seed{seed}", image_features
    )
    return Retriever.load(folder)
