"""Tiny random CLIP and SigLIP folders, as transformers itself writes them, tokenizer and image processor included."""

import string
from pathlib import Path

import torch

SENTENCES = ["a dog runs", "two birds", "a", "the red cat sat on a very long mat and slept till noon", "CAFÉ no 5"]


def _clip_tokenizer(folder: Path, limit: int) -> tuple[int, int]:
    from transformers import CLIPTokenizer

    letters = string.ascii_lowercase + string.digits
    pieces = [*letters, *(letter + "</w>" for letter in letters), "d o", "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece.replace(" ", ""): number for number, piece in enumerate(pieces)}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[("d", "o")], model_max_length=limit)
    tokenizer.save_pretrained(folder)
    return len(pieces), vocabulary["<|endoftext|>"]


def _siglip_tokenizer(folder: Path, limit: int, masks: bool) -> tuple[int, int]:
    """Pieces and a closing symbol, which is also the padding, and no mask: as SigLIP's own.

    `masks`: padding is a symbol of its own and is masked, as by the tokenizer that transformers makes for SigLIP 2.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for sentence in SENTENCES for word in sentence.lower().split()})
    vocabulary = {piece: number for number, piece in enumerate(["<unk>", "</s>", "<pad>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="</s>",
        pad_token="<pad>" if masks else "</s>",
        padding_side="left" if masks else "right",
        model_max_length=limit,
        model_input_names=["input_ids", "attention_mask"] if masks else ["input_ids"],
    ).save_pretrained(folder)
    return len(vocabulary), 1


def make_dual_encoder(folder: Path, family: str, seed: int = 0, image_size: int = 32) -> Path:
    """A dual encoder with two layers a tower, 8x8 patches, and texts of up to 16 tokens.

    Args:
        family: clip, siglip, or siglip2: a siglip with another tokenizer.
    """
    from transformers import (
        CLIPConfig,
        CLIPImageProcessor,
        CLIPModel,
        SiglipConfig,
        SiglipImageProcessor,
        SiglipModel,
    )

    tower = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    image = {**tower, "image_size": image_size, "patch_size": 8}
    text = {**tower, "max_position_embeddings": 16}
    torch.manual_seed(seed)
    if family == "clip":
        size, end = _clip_tokenizer(folder, 16)
        ids = {"vocab_size": size, "eos_token_id": end, "bos_token_id": end - 1, "pad_token_id": end}
        joint = {"projection_dim": 20}
        model = CLIPModel(CLIPConfig(text_config={**text, **ids, **joint}, vision_config={**image, **joint}, **joint))
        processor = CLIPImageProcessor(
            size={"shortest_edge": image_size}, crop_size={"height": image_size, "width": image_size}
        )
    else:
        size, end = _siglip_tokenizer(folder, 16, masks=family == "siglip2")
        text_config = {**text, "vocab_size": size, "eos_token_id": end, "bos_token_id": end, "pad_token_id": end}
        model = SiglipModel(SiglipConfig(text_config=text_config, vision_config=image))
        processor = SiglipImageProcessor(size={"height": image_size, "width": image_size}, resample=2)
    with torch.no_grad():  # what starts at 0 or 1 would hide a mistake
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
