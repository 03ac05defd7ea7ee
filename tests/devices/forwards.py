"""One small run of everything that computes with tensors, in any precision, on any device.

Each is made in two steps. Its modules and inputs are made while a device is the default one, from fixed numbers, so
that a run on the CPU in float32 says what one in half precision should give. It is called where the CPU is the default,
as in every command: a `torch.arange(n)` in a forward is on the CPU then, wherever its inputs are. What a run reaches is
recorded by `recording.py`: a module, a criterion or a function that none reaches fails `test_coverage.py`.
"""

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import timm
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from small_streams import build_translation, build_vtlm, region_inputs, stream_inputs, translation_inputs
from small_text_and_regions import small_batch, small_model
from torch import Tensor, nn
from torch.nn.functional import normalize
from torchvision.models import get_model
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    SiglipVisionConfig,
    SiglipVisionModel,
)

from visual_grounding.analysis import heat_map
from visual_grounding.criterions.grounded_masked_lm import GroundedMaskedLMCriterion
from visual_grounding.criterions.grounded_sentence_prediction import GroundedSentencePredictionCriterion
from visual_grounding.criterions.grounded_tagging import GroundedTaggingCriterion
from visual_grounding.criterions.hardest_negative_triplet import HardestNegativeTripletCriterion
from visual_grounding.criterions.label_smoothed_cross_entropy_with_modality_loss import (
    LabelSmoothedCrossEntropyWithModalityLossCriterion,
)
from visual_grounding.criterions.masked_lm_with_paired_image import MaskedLMWithPairedImageCriterion
from visual_grounding.criterions.token_image_hinge import TokenImageHingeCriterion
from visual_grounding.criterions.visual_tlm import VisualTLMCriterion
from visual_grounding.criterions.voken_classification import VokenClassificationCriterion
from visual_grounding.data.labelled_examples import PREDICTIONS
from visual_grounding.features.backbones import Preprocessing
from visual_grounding.features.backbones.dual_encoder_towers import FAMILIES as TOWER_FAMILIES
from visual_grounding.features.backbones.dual_encoder_towers import _Embedding as TowerEmbedding
from visual_grounding.features.backbones.dual_encoder_towers import _PatchMap as PatchMap
from visual_grounding.features.backbones.timm_networks import _Classifier as TimmClassifier
from visual_grounding.features.backbones.timm_networks import _Map as TimmMap
from visual_grounding.features.backbones.timm_networks import _Own as TimmOwn
from visual_grounding.features.backbones.torchvision_networks import _Classifier as TorchvisionClassifier
from visual_grounding.features.backbones.torchvision_networks import without_head
from visual_grounding.features.backbones.weights import Scaled
from visual_grounding.features.detectors.projection import Projection
from visual_grounding.features.detectors.region_pooling import pool_boxes
from visual_grounding.features.detectors.selection import Selection, cut_to_picture
from visual_grounding.features.image_network import ImageNetwork
from visual_grounding.features.scattering import ScatteringNetwork
from visual_grounding.models.grounded_albert import GroundedAlbertModel
from visual_grounding.models.prediction import PredictionModel
from visual_grounding.models.text_and_regions_decoder import TextAndRegionsDecoder
from visual_grounding.models.token_image_matching import TokenImageMatchingModel
from visual_grounding.models.visual_aware_bert import VisualAwareBert, VisualAwareBertModel
from visual_grounding.models.visual_semantic_embedding import VisualSemanticEmbeddingModel
from visual_grounding.models.vlp_bert import VLPBertModel
from visual_grounding.models.vlp_translation import VLPTranslationConfig, VLPTranslationEncoder, VLPTranslationModel
from visual_grounding.modules import linear_cross_entropy as chunked_loss
from visual_grounding.modules.encoder_input import EncoderInput
from visual_grounding.modules.gated_fusion import GatedFusion
from visual_grounding.modules.grounded_encoder import GroundedEncoder
from visual_grounding.modules.joint_embedding import JointEmbedding, JointEmbeddingConfig
from visual_grounding.modules.matching_losses import hardest_negative_triplet_loss
from visual_grounding.modules.pretrained_bert import FAMILIES, bert_config
from visual_grounding.modules.pretrained_encoder import build_encoder
from visual_grounding.modules.region_embedding import RegionEmbedding
from visual_grounding.modules.selective_attention import SelectiveAttention
from visual_grounding.modules.sru import SRU
from visual_grounding.modules.standardisation import BatchStandardisation
from visual_grounding.modules.token_image_matcher import TokenImageMatcher, TokenImageMatcherConfig
from visual_grounding.modules.vision_language_bert import VisionLanguageBert
from visual_grounding.modules.visual_attention import ImageProjection, VisualAttention
from visual_grounding.modules.voken_head import HEADS, VokenHead
from visual_grounding.modules.weldon_pooling import weldon_pool
from visual_grounding.retrieval import search
from visual_grounding.retrieval.nearest import nearest
from visual_grounding.retrieval.recall import recall_summary, token_recall_summary
from visual_grounding.tasks.grounded_sentence_prediction import GroundedSentencePredictionTask
from visual_grounding.tasks.grounded_tagging import GroundedTaggingTask
from visual_grounding.tasks.validation_scores import Scored
from visual_grounding.text.example_files import Asked
from visual_grounding.text.labelled_text import CLASSES, TAGS, VALUES

Run = tuple[Callable[..., Any], tuple[Any, ...]]  # what is called, and its inputs
FORWARDS: dict[str, Callable[[torch.dtype], Run]] = {}


def forward(make: Callable[[torch.dtype], Run]) -> Callable[[torch.dtype], Run]:
    """Register what makes a run under its name."""
    FORWARDS[make.__name__] = make
    return make


def run(name: str, dtype: torch.dtype, device: str) -> Any:
    """What a run gives whose modules and inputs are on a device. No device is the default while it is called."""
    with torch.device(device):
        call, inputs = FORWARDS[name](dtype)
    return call(*inputs)


def made(module: nn.Module, dtype: torch.dtype) -> Any:
    """A module in evaluation mode, in a precision, with weights that are neither 0 nor 1 nor drawn by a device."""
    generator = torch.Generator().manual_seed(3)
    known: dict[int, nn.Parameter] = {}  # a weight may stand in two places
    kept = []
    for child in module.modules():
        for weight in child.parameters(recurse=False):
            drawn = torch.randn(weight.shape, generator=generator, device="cpu") * 0.2
            known.setdefault(id(weight), nn.Parameter(drawn.to(weight.device, dtype)))
        weights = {name: weight if weight is None else known[id(weight)] for name, weight in child._parameters.items()}
        kept.append((child, weights))
        child._parameters = {}
    module.to(dtype)  # buffers, by whatever rule their modules have; a fake weight couldn't be changed in its place
    for child, weights in kept:
        child._parameters = weights
    return module.eval()


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normal numbers on the default device, the same on all."""
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), device="cpu")
    return drawn.to(torch.get_default_device(), dtype)


def absent(*rows: list[int]) -> Tensor:
    """A mask on the default device."""
    return torch.tensor(rows, dtype=torch.bool)


# --- fusion: T = 4, B = 3, N = 2, R = 2, D = 8 -------------------------------------------------------------------


def images_absent() -> Tensor:
    """Of one sentence none, of one half, of one all."""
    return absent([0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1])


def text_and_images(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """What is fused, and which images are absent."""
    return numbers(4, 3, 8, dtype=dtype), numbers(3, 4, 8, dtype=dtype, seed=1), images_absent()


@forward
def gated_fusion(dtype: torch.dtype) -> Run:
    """Both gates, with and without images."""
    adds, mixes = made(GatedFusion(8), dtype), made(GatedFusion(8, interpolate=True), dtype)

    def call(text: Tensor, images: Tensor, mask: Tensor) -> Any:
        return adds(text, images, mask), mixes(text, images, mask), adds(text, None, None)

    return call, text_and_images(dtype)


@forward
def selective_attention(dtype: torch.dtype) -> Run:
    """Two heads."""
    return made(SelectiveAttention(8, 2), dtype), text_and_images(dtype)


@forward
def visual_attention(dtype: torch.dtype) -> Run:
    """With images, without, what was looked at, and in training, with dropout of nothing."""
    attention = made(VisualAttention(8, 2), dtype)

    def call(text: Tensor, images: Tensor, mask: Tensor) -> Any:
        found = (
            attention(text, images, mask),
            attention(text, None, None),
            attention.attention.weights(text, images, mask),
        )
        return *found, attention.train()(text, images, mask)

    return call, text_and_images(dtype)


def stored() -> tuple[Tensor, Tensor]:
    """Features as a store has them, and which are absent."""
    return numbers(3, 2, 2, 6, dtype=torch.float16), images_absent().view(3, 2, 2)


@forward
def image_projection(dtype: torch.dtype) -> Run:
    """One layer and two."""
    one, two = made(ImageProjection(6, 8), dtype), made(ImageProjection(6, 8, 5), dtype)
    return lambda features, mask: (one(features, mask), two(features, mask)), stored()


@forward
def standardised_image_projection(dtype: torch.dtype) -> Run:
    """In training, by the batch's own statistics, and after it."""
    projection = made(ImageProjection(6, 8, standardise=True), dtype)

    def call(features: Tensor, mask: Tensor) -> Any:
        return projection.train()(features, mask), projection.eval()(features, mask)

    return call, stored()


@forward
def batch_standardisation(dtype: torch.dtype) -> Run:
    """Of several vectors, of one, and of none."""
    standardise = made(BatchStandardisation(6), dtype).train()

    def call(vectors: Tensor, masks: Tensor) -> Any:
        return [standardise(vectors, present) for present in (*masks, None)]

    return call, (numbers(3, 6, dtype=dtype), absent([1, 1, 0], [0, 1, 0], [0, 0, 0]))


@forward
def region_embedding(dtype: torch.dtype) -> Run:
    """With masked regions, and without."""
    embedding = made(RegionEmbedding(6, 8), dtype)

    def call(features: Tensor, boxes: Tensor, masked: Tensor, mask: Tensor) -> Any:
        return embedding(features, boxes, masked, mask), embedding(features, boxes, None, mask)

    features, boxes = numbers(3, 4, 6, dtype=torch.float16), numbers(3, 4, 4).sigmoid()
    return call, (features, boxes, images_absent(), numbers(8, dtype=dtype, seed=1))


# --- the retriever: B = 3, T = 4, R = 6, F = 6, D = 8 ------------------------------------------------------------


def tokens() -> tuple[Tensor, Tensor]:
    """Three sentences, the last one empty."""
    padding = absent([0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1])
    return torch.tensor([[4, 5, 6, 7], [8, 9, 1, 1], [1, 1, 1, 1]]), padding


def joint_embedding(encoder: str, pooling: str, dtype: torch.dtype, norm: bool = False) -> Any:
    """Both towers; a small BERT where the encoder is pretrained."""
    bert = small_bert() if encoder == "pretrained" else None
    config = JointEmbeddingConfig(encoder, pooling, 6, 8, 20, 5, 2, joint_batch_norm=norm)
    return made(JointEmbedding(config, bert), dtype)


def small_bert() -> Any:
    """A BERT of one layer."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertModel(BertConfig(vocab_size=20, max_position_embeddings=16, attn_implementation="sdpa", **sizes))


def pictures(pooling: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Features of three images, the last one absent."""
    regions = 6 if pooling == "weldon" else 1
    mask = torch.zeros(3, regions, dtype=torch.bool)
    mask[2] = True
    mask[1, 3:] = True
    return numbers(3, regions, 6, dtype=dtype).masked_fill(mask.unsqueeze(-1), 0), mask


@forward
def joint_embedding_sru_linear(dtype: torch.dtype) -> Run:
    """VA's text encoder, mean-pooled images."""
    return joint_embedding("sru", "linear", dtype), (*tokens(), *pictures("linear", dtype))


@forward
def joint_embedding_bag_weldon(dtype: torch.dtype) -> Run:
    """A bag of words, a grid."""
    return joint_embedding("bag", "weldon", dtype), (*tokens(), *pictures("weldon", dtype))


@forward
def joint_embedding_pretrained(dtype: torch.dtype) -> Run:
    """A BERT that learns."""
    return joint_embedding("pretrained", "linear", dtype), (*tokens(), *pictures("linear", dtype))


@forward
def joint_embedding_standardised(dtype: torch.dtype) -> Run:
    """In training."""
    embedding = joint_embedding("bag", "weldon", dtype, norm=True).train()
    embedding.text.dropout = embedding.image.dropout = 0.0
    return embedding, (*tokens(), *pictures("weldon", dtype))


@forward
def recurrent_units(dtype: torch.dtype) -> Run:
    """40 steps, two layers of different sizes."""
    return made(SRU(5, 8, 2), dtype), (numbers(40, 3, 5, dtype=dtype),)


@forward
def weldon_pooling(dtype: torch.dtype) -> Run:
    """49 cells, fewer, none."""
    mask = torch.zeros(3, 49, dtype=torch.bool)
    mask[1, 10:] = True
    mask[2] = True
    return weldon_pool, (numbers(3, 49, 8, dtype=dtype), mask)


@forward
def triplet_loss(dtype: torch.dtype) -> Run:
    """Both directions; two captions of one image."""

    def call(similarity: Tensor, rows: Tensor) -> Any:
        return [hardest_negative_triplet_loss(similarity, rows, 0.2, direction) for direction in ("image", "both")]

    return call, (numbers(4, 4, dtype=dtype), torch.tensor([0, 0, 1, 2]))


class Pairs(nn.Module):
    """A model that returns what it is given."""

    def forward(self, text: Tensor, images: Tensor, visual: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """text (B, D), images (B, D), the batch's images -> the first two."""
        return text, images


@forward
def triplet_criterion(dtype: torch.dtype) -> Run:
    """Four pairs, one without its image."""
    text, images = (normalize(numbers(4, 8, dtype=dtype, seed=seed), dim=1) for seed in (0, 1))
    visual = {"padding_mask": absent([0], [0], [1], [0]).unsqueeze(1)}
    sample = {"net_input": {"text": text, "images": images, "visual": visual}, "ntokens": 9, "nsentences": 4}
    sample["image_rows"] = torch.tensor([0, 0, 1, 2])
    criterion = HardestNegativeTripletCriterion(None, 0.2, "both")
    return lambda sample: criterion(Pairs(), sample)[0], (sample,)


@forward
def visual_semantic_embedding(dtype: torch.dtype) -> Run:
    """The model that fairseq trains, on features and with a network of its own."""
    features, mask = pictures("linear", torch.float16)
    visual = {"features": features.unsqueeze(1), "padding_mask": mask.unsqueeze(1)}
    return VisualSemanticEmbeddingModel(joint_embedding("sru", "linear", dtype)), (*tokens(), visual)


def token_image_matcher(dtype: torch.dtype, sentence_level: bool = False) -> Any:
    """Both sides around a small BERT."""
    config = TokenImageMatcherConfig(1, 6, joint_size=8, hidden_size=5, sentence_level=sentence_level)
    return made(TokenImageMatcher(config, small_bert()), dtype)


@forward
def token_image_matcher_of_both_kinds(dtype: torch.dtype) -> Run:
    """Of tokens with the mean of several regions, and of sentences."""
    tokens_, sentences = token_image_matcher(dtype), token_image_matcher(dtype, sentence_level=True)

    def call(*inputs: Tensor) -> Any:
        return tokens_(*inputs), sentences(*inputs), tokens_.encode_text(*inputs[:2])

    return call, (*tokens(), *pictures("weldon", dtype))


@forward
def token_image_matcher_that_keeps_states(dtype: torch.dtype) -> Run:
    """Sentences that are read, then what was kept of them."""
    matcher = token_image_matcher(dtype)
    matcher.keep_states(2**20)

    def call(*inputs: Tensor) -> Any:
        return matcher.encode_tokens(*inputs), matcher.encode_tokens(*inputs)

    return call, tokens()


@forward
def token_image_matching(dtype: torch.dtype) -> Run:
    """The model that fairseq trains."""
    features, mask = pictures("linear", torch.float16)
    visual = {"features": features.unsqueeze(1), "padding_mask": mask.unsqueeze(1)}
    return TokenImageMatchingModel(token_image_matcher(dtype)), (*tokens(), visual)


class Tokens(nn.Module):
    """A model that returns what it is given."""

    def forward(
        self, text: Tensor, images: Tensor, token_padding_mask: Tensor, visual: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """text (B, T, D) or (B, D), images (B, D), two masks -> the first two."""
        return text, images


@forward
def token_image_hinge_criterion(dtype: torch.dtype) -> Run:
    """Four captions, one without its image; one negative and all, tokens and sentences."""
    text, images = normalize(numbers(4, 3, 8, dtype=dtype), dim=2), normalize(numbers(4, 8, dtype=dtype, seed=1), dim=1)
    visual = {"padding_mask": absent([0], [0], [1], [0]).unsqueeze(1)}
    mask = absent([0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 1])
    sample = {"net_input": {"images": images, "token_padding_mask": mask, "visual": visual}, "ntokens": 9}
    sample |= {"nsentences": 4, "image_rows": torch.tensor([0, 0, 1, 2])}

    def call(sample: dict[str, Any], *texts: Tensor) -> Any:
        found = []
        for choice in ("one", "all"):
            criterion = TokenImageHingeCriterion(None, 0.5, choice)
            for given in texts:
                found.append(criterion(Tokens(), {**sample, "net_input": {**sample["net_input"], "text": given}})[0])
        return found

    return call, (sample, text, text[:, 0])


# --- translation: B = 2, T = 4, N = 3, R = 2, F = 6, D = 16 --------------------------------------------------------


class Task:
    """As much of a task as a model asks for."""

    image_feature_size = 6
    image_store = None

    def __init__(self) -> None:
        self.source_dictionary = self.target_dictionary = Dictionary()
        for word in "abcdefgh":
            self.source_dictionary.add_symbol(word)
        self.cfg = Namespace(image_features="features/some")


def translate(arch: str, dtype: torch.dtype, **flags: object) -> Run:
    """Scores of the next words, with images and without."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 16}
    args = Namespace(arch=arch, **{**sizes, "encoder_attention_heads": 2, "decoder_attention_heads": 2, **flags})
    ARCH_CONFIG_REGISTRY[arch](args)
    model = made(ARCH_MODEL_REGISTRY[arch].build_model(args, Task()), dtype)
    inputs = {
        "src_tokens": torch.tensor([[4, 5, 6, 2], [7, 8, 2, 1]]),
        "src_lengths": torch.tensor([4, 3]),
        "prev_output_tokens": torch.tensor([[2, 4, 5], [2, 6, 1]]),
    }
    visual = {
        "features": numbers(2, 3, 2, 6, dtype=torch.float16),
        "padding_mask": absent([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1]).view(2, 3, 2),
    }
    if "visual" not in signature(model.forward).parameters:
        return lambda inputs: model(**inputs)[0], (inputs,)
    return lambda inputs, visual: (model(**inputs, visual=visual)[0], model(**inputs)[0]), (inputs, visual)


@forward
def visual_aware_transformer(dtype: torch.dtype) -> Run:
    """VA."""
    return translate("visual_aware_transformer", dtype)


@forward
def gated_fusion_transformer(dtype: torch.dtype) -> Run:
    """Wu et al."""
    return translate("gated_fusion_transformer", dtype)


@forward
def selective_attention_transformer(dtype: torch.dtype) -> Run:
    """Li et al."""
    return translate("selective_attention_transformer", dtype)


@forward
def text_only_transformer(dtype: torch.dtype) -> Run:
    """The twin, which takes no images."""
    return translate("text_only_transformer", dtype)


@forward
def text_and_regions(dtype: torch.dtype) -> Run:
    """The decoder over both: all looks at once, then two steps of beam search."""
    model = made(small_model(), dtype)

    def call(batch: dict[str, Any]) -> Any:
        scores, extra = model(**batch, attend_apart=(0, 1), watch_attention=True)
        source = {name: batch[name] for name in ("src_tokens", "src_lengths", "visual")}
        order, state, steps = batch["src_tokens"].new_tensor([0, 2, 2]), {}, []
        encoded = model.encoder.reorder_encoder_out(model.encoder(**source), order)
        for step in (1, 2):
            tokens = batch["prev_output_tokens"][order, :step]
            steps.append(model.decoder(tokens, encoder_out=encoded, incremental_state=state))
        return scores, extra, steps, model(**{**batch, "visual": None})[0]

    return call, (small_batch(),)


@forward
def modality_criterion(dtype: torch.dtype) -> Run:
    """Learned weights in all layers, fixed ones in the last; with images and without."""
    model = made(small_model(), dtype)
    task = Namespace(target_dictionary=model.decoder.dictionary, image_feature_size=6, looks_apart=model.looks_apart)
    criterions = [
        made(LabelSmoothedCrossEntropyWithModalityLossCriterion(task, False, 0.1, weight, layers), dtype).train()
        for weight, layers in (("learned", "all"), ("0.4", "last"))
    ]
    target = torch.tensor([[4, 5, 6, 2], [6, 7, 2, 1], [8, 2, 1, 1]])

    def call(batch: dict[str, Any], target: Tensor) -> Any:
        batches = (
            {"net_input": inputs, "target": target, "ntokens": 9} for inputs in (batch, {**batch, "visual": None})
        )
        return [criterion(model, sample)[::2] for sample in batches for criterion in criterions]

    return call, (small_batch(), target)


class Bridge:
    """As much of a tokenizer's bridge as `EncoderInput` asks for: 8 pieces, the last of the dictionary has none."""

    name, opening, closing, max_pieces = "small", [0], [2], 14
    tokenizer_ids = np.array([5, 0, 6, 7, 1, 2, 3, 4])

    def check_dictionary(self, symbols: list[str], place: str) -> None:
        """They fit."""

    def __len__(self) -> int:
        return len(self.tokenizer_ids)


@forward
def encoder_input(dtype: torch.dtype) -> Run:
    """fairseq's sentences as a pretrained encoder reads them."""
    return EncoderInput(Bridge(), ["piece"] * 9, "dict.txt"), (torch.tensor([[4, 5, 6, 2], [7, 2, 1, 1]]),)


@forward
def encoder_rows(dtype: torch.dtype) -> Run:
    """An embedding's rows in fairseq's order, and back."""
    converter = EncoderInput(Bridge(), ["piece"] * 9, "dict.txt")

    def call(weight: Tensor) -> Any:
        rows = converter.fairseq_rows(weight)
        return rows, converter.tokenizer_rows(rows, weight)

    return call, (numbers(8, 4, dtype=dtype),)


# --- one stream of text and regions: B = 2, L = 7, N = 2, R = 2, F = 6, D = 16 ---------------------------------------


def stream_batch() -> dict[str, Any]:
    """What the criterion of pre-training gets; the second sentence has one region in all."""
    targets = torch.tensor([[1, 4, 1, 1, 1, 6, 1], [1, 1, 2, 1, 1, 1, 1]])
    labels = torch.tensor([[[-1, 3], [0, -1]], [[2, -1], [-1, -1]]])
    net_input = {**stream_inputs(), "visual": region_inputs()}
    return {"net_input": net_input, "word_targets": targets, "label_targets": labels, "ntokens": 13, "nsentences": 2}


@forward
def vtlm(dtype: torch.dtype) -> Run:
    """Everything predicted, with images and without, and what is chosen."""
    model = made(build_vtlm(), dtype)

    def call(batch: dict[str, Any]) -> Any:
        words, regions = batch["word_targets"] != 1, batch["label_targets"] >= 0
        inputs = {name: value for name, value in batch["net_input"].items() if name != "visual"}
        every = model(**batch["net_input"])
        return every, model(**inputs)[0], model(**batch["net_input"], words=words, regions=regions)

    return call, (stream_batch(),)


@forward
def visual_tlm_criterion(dtype: torch.dtype) -> Run:
    """The loss of words and regions."""
    model = made(build_vtlm(), dtype)
    task = Namespace(source_dictionary=model.encoder.dictionary)
    return lambda batch: VisualTLMCriterion(task, 1.0)(model, batch)[0], (stream_batch(),)


@forward
def vtlm_translation(dtype: torch.dtype) -> Run:
    """Scores of the next words, with images and without; step by step."""
    model = made(build_translation(), dtype)

    def call(inputs: dict[str, Tensor], visual: dict[str, Tensor]) -> Any:
        encoded = model.encoder(inputs["src_tokens"], visual=visual)
        step = model.decoder(inputs["prev_output_tokens"][:, :1], encoder_out=encoded, incremental_state={})[0]
        return model(**inputs, visual=visual)[0], model(**inputs)[0], step

    return call, (translation_inputs(), region_inputs(masked=False))


# --- networks: B = 2 pictures ---------------------------------------------------------------------------------------


def pixels(side: int) -> Tensor:
    """Two pictures as bytes."""
    return torch.arange(2 * side * side * 3).remainder(251).to(torch.uint8).view(2, side, side, 3)


@forward
def image_network(dtype: torch.dtype) -> Run:
    """A network that is trained with the retriever; in evaluation mode, frozen or not."""
    network = made(ImageNetwork("resnet18", without_head(get_model("resnet18")), Preprocessing(64, 64), True), dtype)

    def call(images: Tensor) -> Any:
        learning = network(images)
        network.freeze(True)
        return learning, network(images)

    return call, (pixels(64),)


def timm_network(name: str, dtype: torch.dtype) -> Run:
    """The map, the network's own pooling, and its classes."""
    model = timm.create_model(name, pretrained=False)
    cells, *others = made(TimmMap(model, name), dtype), made(TimmOwn(model), dtype), made(TimmClassifier(model), dtype)
    return lambda images: (cells(images), [each(images) for each in others]), (numbers(2, 3, 160, 160, dtype=dtype),)


@forward
def torchvision_classifier(dtype: torch.dtype) -> Run:
    """What it pools, and its classes."""
    model = get_model("resnet18")
    return made(TorchvisionClassifier(without_head(model), model), dtype), (numbers(2, 3, 64, 64, dtype=dtype),)


@forward
def region_features(dtype: torch.dtype) -> Run:
    """Pooled from two maps, for two pictures, one without a box; projected."""
    projection = Projection(numbers(5), numbers(4, 5, seed=1), torch.tensor([2.0, 0.5]), "", "").to(dtype)

    def call(fine: Tensor, coarse: Tensor, boxes: Tensor) -> Any:
        inside, real = cut_to_picture(boxes)
        blocks = [pool_boxes(each, [inside[:0], inside]).to(dtype) for each in (fine, coarse)]
        return blocks, projection(blocks), real

    boxes = torch.tensor([[0.1, 0.2, 0.6, 0.9], [-0.5, 0.0, 1.0, 1.5]])
    return call, (numbers(2, 3, 6, 8, dtype=dtype), numbers(2, 2, 3, 4, dtype=dtype, seed=2), boxes)


@forward
def region_selection(dtype: torch.dtype) -> Run:
    """Of two classes, and across them."""
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.4], [0.0, 0.0, 0.4, 0.5]])
    scores, labels = torch.tensor([0.5, 0.9, 0.7]), torch.tensor([1, 1, 2])
    selections = [Selection(nms_iou=0.5), Selection(nms_iou=0.5, nms_across_classes=True)]
    return lambda *found: [selection.of(*found) for selection in selections], (boxes, labels, scores)


@forward
def timm_map(dtype: torch.dtype) -> Run:
    """A convolutional network."""
    return timm_network("test_resnet", dtype)


@forward
def timm_tokens(dtype: torch.dtype) -> Run:
    """A vision transformer."""
    return timm_network("test_vit", dtype)


def image_tower(model: Any, family: str, dtype: torch.dtype) -> Run:
    """Patches, and what is compared with text; at the tower's own size and at another."""
    patches = made(PatchMap(model, family, model.config), dtype)
    embedding = made(TowerEmbedding(model, TOWER_FAMILIES[family].image_output, model.config), dtype)

    def call(*pictures: Tensor) -> Any:
        return [network(images) for images in pictures for network in (patches, embedding)]

    return call, tuple(numbers(2, 3, side, side, dtype=dtype) for side in (32, 48))


TOWER = {"hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@forward
def clip_image_tower(dtype: torch.dtype) -> Run:
    """CLIP's."""
    config = CLIPVisionConfig(**TOWER, image_size=32, patch_size=8, projection_dim=20)
    return image_tower(CLIPVisionModelWithProjection(config), "clip", dtype)


@forward
def siglip_image_tower(dtype: torch.dtype) -> Run:
    """SigLIP's."""
    return image_tower(SiglipVisionModel(SiglipVisionConfig(**TOWER, image_size=32, patch_size=8)), "siglip", dtype)


@forward
def scattering(dtype: torch.dtype) -> Run:
    """Wavelets, which are float32 in any model."""
    return ScatteringNetwork(16, 2, 2), (pixels(16).permute(0, 3, 1, 2) / 255,)


@forward
def scaled_network(dtype: torch.dtype) -> Run:
    """Random weights whose features are of a usable size."""
    return made(Scaled(nn.Conv2d(3, 4, 3)), dtype), (numbers(2, 3, 9, 9, dtype=dtype),)


# --- VLP: B = 3, T = 4, G = 2, N = 1, R = 2, F = 6, D = 8, V = 10 -----------------------------------------------------

BERT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 7,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "initializer_range": 0.02,
}  # fmt: skip


def seen_regions(dtype: torch.dtype) -> dict[str, Tensor]:
    """Two regions, one, none; with tags, of which the first sentence's second has no position left."""
    corner = numbers(3, 1, 2, 2).sigmoid() / 2
    return {
        "features": numbers(3, 1, 2, 6).half(),
        "boxes": torch.cat([corner, corner + 0.4], dim=-1).to(dtype),
        "padding_mask": absent([0, 0], [0, 1], [1, 1]).view(3, 1, 2),
        "tags": torch.tensor([[5, 9], [6, 7], [1, 1]]),
    }


SENTENCES = ([5, 6, 7, 2], [8, 2, 1, 1], [1, 9, 8, 2])


@forward
def vision_language_bert(dtype: torch.dtype) -> Run:
    """With tags and regions, for which there are positions; with neither."""
    stream = made(VisionLanguageBert(bert_config({**BERT, "max_position_embeddings": 12}, 10), 6), dtype)
    inputs = torch.tensor(SENTENCES), seen_regions(dtype)
    return lambda tokens, visual: (stream(tokens, visual), stream(tokens).hidden), inputs


@forward
def vlp_translation(dtype: torch.dtype) -> Run:
    """With tags and regions, looked at apart as well; from text alone."""
    config = bert_config({**BERT, "max_position_embeddings": 12}, 10)
    sizes = {"decoder_embed_dim": 8, "decoder_ffn_embed_dim": 16, "decoder_attention_heads": 2, "decoder_layers": 1,
             "encoder_embed_dim": 8, "decoder_input_dim": 8, "decoder_output_dim": 8}  # fmt: skip
    cfg, words = VLPTranslationConfig.from_namespace(Namespace(**sizes)), Dictionary()
    encoder = VLPTranslationEncoder(words, VisionLanguageBert(config, 6), 8, freeze=True)
    decoder = TextAndRegionsDecoder(cfg, words, nn.Embedding(len(words), 8, words.pad()))
    model = made(VLPTranslationModel(encoder, decoder), dtype)

    def call(tokens: Tensor, before: Tensor, visual: dict[str, Tensor]) -> Any:
        scores, extra = model(tokens, None, before, visual=visual, attend_apart=(0,))
        return scores, extra["attended_apart"][0], model(tokens, None, before)[0]

    return call, (torch.tensor(SENTENCES), torch.tensor([[2, 3, 3], [2, 3, 1], [2, 0, 3]]), seen_regions(dtype))


@forward
def vision_language_pretraining(dtype: torch.dtype) -> Run:
    """Both losses of a batch with hidden words, tags, and other images; and of text alone."""
    model = made(VLPBertModel(VisionLanguageBert(bert_config(BERT, 10), 6)), dtype)
    task = Namespace(source_dictionary=Dictionary())
    criterion = MaskedLMWithPairedImageCriterion(task)
    tokens, visual = torch.tensor(SENTENCES), seen_regions(dtype)
    sample = {
        "net_input": {"src_tokens": tokens, "visual": visual}, "ntokens": 9, "paired": torch.tensor([1, 0, -1]),
        "target": torch.where(tokens == 5, 6, 1), "tag_target": torch.where(visual["tags"] > 5, 4, 1),
    }  # fmt: skip

    def call(sample: dict[str, Any]) -> Any:
        return criterion(model, sample)[0], model.stream(sample["net_input"]["src_tokens"]).hidden

    return call, (sample,)


# --- GS: B = 3, T = 4, N = 2, R = 2, F = 6, D = 8, V = 10 -------------------------------------------------------------


def encoder_choices(kind: str, size: int) -> dict[str, Any]:
    """Of a small encoder of transformers, in fairseq's numbers."""
    sizes = {"hidden_size": size, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = {"model_type": kind, "vocab_size": 10, "pad_token_id": 1, "max_position_embeddings": 12, **sizes}
    return {"config": {**config, "embedding_size": 4}, "opening": [0], "closes": True, "max_positions": 11}


@forward
def grounded_language_model(dtype: torch.dtype) -> Run:
    """Hidden words and hidden regions of lines with two images, one, and none; and words of text alone."""
    encoder = GroundedEncoder(encoder_choices("albert", 8), encoder_choices("bert", 16), 6, 3)
    model = made(GroundedAlbertModel(encoder), dtype)
    criterion = GroundedMaskedLMCriterion(Namespace(mask=4, cfg=Namespace(grounding_objective="both")), 2.0)
    tokens = torch.tensor([[5, 6, 7, 2], [8, 9, 2, 1], [6, 2, 1, 1]])
    absences = absent([0, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1]).view(3, 2, 2)
    visual = {"features": numbers(3, 2, 2, 6).half(), "padding_mask": absences}
    sample = {
        "net_input": {"src_tokens": tokens, "visual": visual},
        "nsentences": 3, "ntokens": 9, "hidden_words": (tokens == 6) | (tokens == 8),
        "word_side": torch.tensor([True, False, True]), "region_side": torch.tensor([True, True, False]),
        "hidden_regions": (numbers(3, 2, 2) > 0) & ~absences,
    }  # fmt: skip

    def call(sample: dict[str, Any]) -> Any:
        return criterion(model, sample)[0], model.encoder(sample["net_input"]["src_tokens"]).text

    return call, (sample,)


def asking(task: type, answers: str, labels: tuple[str, ...]) -> Any:
    """A task of understanding without its data."""
    bare = task.__new__(task)
    bare.asked, bare._open = Asked(answers, labels, 1, False, 0), None
    bare.scored = {PREDICTIONS: Scored(("gold", "predicted"), (), dict)}
    return bare


def pairs_and_images(dtype: torch.dtype) -> dict[str, Any]:
    """Two sentences with two images, one of them with one alone."""
    visual = {"features": numbers(2, 2, 1, 6).half(), "padding_mask": absent([0, 0], [0, 1]).view(2, 2, 1)}
    return {"src_tokens": torch.tensor([[5, 6, 2, 7, 2], [8, 2, 9, 2, 1]]), "visual": visual}


@forward
def understanding(dtype: torch.dtype) -> Run:
    """Classes of pairs and numbers from both architectures, and tags of words."""
    choices = {**encoder_choices("bert", 8), "segments": True}
    aware = VisualAwareBert(build_encoder(choices), ImageProjection(6, 8), VisualAttention(8, 2))
    models = [made(VisualAwareBertModel(aware, 3), dtype),
              made(PredictionModel(GroundedEncoder(choices, choices, 6, 3), 1), dtype)]  # fmt: skip
    tasks = [asking(GroundedSentencePredictionTask, CLASSES, ("a", "b", "c")),
             asking(GroundedSentencePredictionTask, VALUES, ())]  # fmt: skip
    tagging = asking(GroundedTaggingTask, TAGS, ("B-x", "I-x", "O"))
    net_input, ids = pairs_and_images(dtype), torch.tensor([0, 1])
    sample = {"id": ids, "ntokens": 9, "nsentences": 2, "net_input": net_input}
    targets = [torch.tensor([2, -1]), torch.tensor([0.5, 2.0])]
    places = torch.tensor([[0, 1, 3], [0, -1, -1]])
    tags = {**sample, "net_input": {**net_input, "word_positions": places},
            "target": torch.tensor([[2, 0, 1], [2, -1, -2]])}  # fmt: skip

    def call(sample: dict[str, Any], targets: list[Tensor], tags: dict[str, Any]) -> Any:
        found = [
            GroundedSentencePredictionCriterion(task)(model, {**sample, "target": target})[0]
            for task, model, target in zip(tasks, models, targets)
        ]
        word = models[0](**{**tags["net_input"], "word_positions": tags["net_input"]["word_positions"][:, 0]})
        return found, GroundedTaggingCriterion(tagging)(models[0], tags)[0], word

    return call, (sample, targets, tags)


# --- VOK: B = 2, T = 5, D = 8, 10 words, V = 12 -----------------------------------------------------------------------


class Context:
    """What torch hands to a function that brings its own gradients."""

    needs_input_grad = (True, True, True, False, False)

    def save_for_backward(self, *saved: Tensor) -> None:
        """Keep them."""
        self.saved_tensors = saved

    def mark_non_differentiable(self, *_: Tensor) -> None:
        """Nothing to do."""


@forward
def linear_cross_entropy(dtype: torch.dtype) -> Run:
    """The loss, and its gradients, which no graph is needed for."""

    def call(hidden: Tensor, weight: Tensor, bias: Tensor, classes: Tensor) -> Any:
        context = Context()
        loss, _ = chunked_loss._LossWithGradients.forward(context, hidden, weight, bias, classes, weight.dtype)
        gradients = chunked_loss._LossWithGradients.backward(context, loss, None)[:3]
        return loss, chunked_loss.linear_cross_entropy(hidden, weight, bias, classes).loss, gradients

    parts = (numbers(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate([(6, 8), (12, 8), (12,)]))
    return call, (*parts, torch.tensor([0, 11, 3, 3, 7, 5]))


@forward
def voken_head(dtype: torch.dtype) -> Run:
    """Both kinds; two pieces have no voken."""
    heads = [made(VokenHead(8, 12, kind), dtype) for kind in HEADS]

    def call(hidden: Tensor, vokens: Tensor) -> Any:
        return [(head(hidden, vokens).loss, head.scores(hidden)) for head in heads]

    return call, (numbers(2, 5, 8, dtype=dtype), torch.tensor([[-1, 3, 11, 0, -1], [4, 4, 4, 9, 1]]))


def voken_batch() -> dict[str, Any]:
    """Two blocks, the second one shorter."""
    tokens = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]])
    return {
        "net_input": {"src_tokens": tokens, "padding_mask": tokens == 1}, "nsentences": 2, "ntokens": 8,
        "word_targets": torch.tensor([[-1, 9, -1, 4, -1], [-1, 8, -1, -1, -1]]),
        "voken_targets": torch.tensor([[-1, 3, -1, 11, -1], [-1, 0, -1, -1, -1]]),
    }  # fmt: skip


def voken_language_model(kind: str, dtype: torch.dtype) -> Any:
    """Of one of both families."""
    family = FAMILIES[kind]
    body = family.part(1)(bert_config({**BERT, "max_position_embeddings": 9}, 10, family), add_pooling_layer=False)
    model = ARCH_MODEL_REGISTRY[f"voken_{kind}"](body, True, 12, "deep")
    return made(model, dtype)


@forward
def voken_bert(dtype: torch.dtype) -> Run:
    """States, and both losses."""
    model = voken_language_model("bert", dtype)

    def call(batch: dict[str, Any]) -> Any:
        inputs = batch["net_input"]
        targets = {name: batch[name] for name in ("word_targets", "voken_targets")}
        found = model(**inputs, **targets)
        return model.states(**inputs), model.states(inputs["src_tokens"][:1]), found.words.loss, found.vokens.loss

    return call, (voken_batch(),)


@forward
def voken_roberta(dtype: torch.dtype) -> Run:
    """The criterion over the other family."""
    model = voken_language_model("roberta", dtype)
    criterion = VokenClassificationCriterion(Namespace(cfg=Namespace(voken_weight=1.0, mlm_weight=0.5)))
    return lambda batch: criterion(model, batch)[0], (voken_batch(),)


# --- search and scores: these are float32 inside, whatever the model's precision ------------------------------------


@forward
def top_k(dtype: torch.dtype) -> Run:
    """With ties, and all of the columns."""

    def call(scores: Tensor) -> Any:
        return search.top_k(scores, 40), search.top_k(scores, 3), search.top_k(scores.round(), 3)

    return call, (numbers(3, 40, dtype=dtype),)


@forward
def scan(dtype: torch.dtype) -> Run:
    """Several chunks of several blocks, in float32; in half precision, where rows tie, the scores alone."""

    def call(queries: Tensor, images: Tensor) -> Any:
        sizes = {"count": 4, "chunk": 130, "query_chunk": 2}
        return search.scan(queries, images, **sizes), search.scan(queries, images, **sizes, precision=torch.bfloat16)[0]

    return call, (numbers(3, 8), numbers(300, 8, seed=1))


@forward
def rerank(dtype: torch.dtype) -> Run:
    """Candidates that are given."""
    candidates = torch.tensor([[0, 1, 2, 3], [3, 2, -1, -1], [5, 4, 3, 2]])
    return search.rerank, (numbers(3, 8), numbers(6, 8, seed=1), candidates, 2, torch.tensor([0, -1, 5]))


@forward
def exact_search(dtype: torch.dtype) -> Run:
    """With excluded and absent images, and equal ones beyond the candidates, so that float64 has to look again."""
    images = numbers(300, 8, seed=1)
    images[7] = 0
    images[20:60] = 10 * images[20]
    queries = torch.cat([numbers(3, 8), images[20:21]])
    exclude = torch.tensor([0, -1, 5, 20])
    options = {"device": queries.device, "chunk": 130, "query_chunk": 2}
    return partial(search.exact_search, k=3, exclude=exclude, **options), (queries, images)


@forward
def nearest_image(dtype: torch.dtype) -> Run:
    """With absent images, an empty query, and many equal images, so that float32 and float64 have to look again."""
    images = numbers(1100, 8, seed=1)
    images[7] = 0
    images[20:1000] = 10 * images[20]
    queries = torch.cat([numbers(3, 8), images[20:21], numbers(1, 8) * 0])

    def call(queries: Tensor, images: Tensor) -> Any:
        return nearest(queries, images, queries.device)

    return call, (queries, images)


@forward
def recall(dtype: torch.dtype) -> Run:
    """Five captions of four images."""

    def call(text: Tensor, images: Tensor, rows: Tensor) -> Any:
        return text.new_tensor(list(recall_summary(text, images, rows).values()))

    return call, (numbers(5, 8), numbers(4, 8, seed=1), torch.tensor([0, 1, 1, 2, 3]))


@forward
def token_recall(dtype: torch.dtype) -> Run:
    """Tokens of five captions, one of them without any."""

    def call(tokens: Tensor, images: Tensor, rows: Tensor) -> Any:
        return tokens.new_tensor(list(token_recall_summary(tokens, images, rows).values()))

    tokens = numbers(5, 3, 8).masked_fill(absent([0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 0, 0]).unsqueeze(2), 0)
    return call, (tokens, numbers(4, 8, seed=1), torch.tensor([0, 1, 1, 2, 3]))


@forward
def heat_maps(dtype: torch.dtype) -> Run:
    """A grid of 3 x 3 cells against a text."""

    def call(cells: Tensor, text: Tensor) -> Any:
        grid = heat_map.heat_map(cells, text, 2).view(3, 3)
        return grid, heat_map.upsample(grid, 5, 7)

    return call, (numbers(9, 8, dtype=dtype), numbers(8, dtype=dtype, seed=1))


@forward
def heat_map_for_the_eye(dtype: torch.dtype) -> Run:
    """Where it is highest, and in 0..1."""
    return lambda grid: (heat_map.stretch(grid), grid.new_tensor(heat_map.peak(grid))), (numbers(3, 3, dtype=dtype),)
