"""A language model's folder as transformers reads it, with its tokenizer, from the checkpoint of its training.

`AutoModel`, `AutoModelForMaskedLM` and the other Auto classes open it, and so does `--bert`. Its rows are the
tokenizer's own again, without fairseq's padding words; what is there for images or vokens alone is left out.

config.json, model.safetensors  as transformers writes them
tokenizer files                 as transformers writes them
meta.json                       how it was made, and which files are of it
"""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from ..errors import InputError
from ..modules.encoder_input import EncoderInput
from ..modules.pretrained_bert import BIAS, FAMILIES, POSITIONS, WORDS, Family, shift_positions
from ..storage.artefact import FORMAT_VERSION, META, sha256_of_file, write_json
from ..storage.checkpoints import architecture, dictionaries, load_checkpoint
from ..storage.outside import read_json, reading
from ..storage.signature import signature
from ..storage.weights import check_weights_fit
from ..storage.whole_folder import write_folder
from ..text.tokenizer_bridge import BOS, EOS, NONE, TokenizerBridge
from ..text.words import PAD, digest_of_symbols
from .vokens import VOKENS, Vokens

LANGUAGE_MODEL = "language-model"
WEIGHTS = "model.safetensors"
HEAD = "word_head."


class _Kept(NamedTuple):
    """Where an architecture's checkpoint has a BERT: its family, what its names begin with, and which are left out."""

    family: Family
    body: str
    dictionary: str  # the name under which the task remembered it
    left_out: tuple[str, ...]


# Of every preset, too.
ARCHITECTURES = {
    "voken_bert": _Kept(FAMILIES["bert"], "body.", "pieces", ("voken_head.",)),
    "voken_roberta": _Kept(FAMILIES["roberta"], "body.", "pieces", ("voken_head.",)),
    "vlp_bert": _Kept(FAMILIES["bert"], "stream.bert.", "source", ("stream.image_projection.", "paired_head.")),
}


class ExportedLanguageModel(NamedTuple):
    """What was written, in a line, and its signature."""

    summary: str
    signature: str


def export_language_model(checkpoint: Path, tokenizer: str, folder: Path) -> ExportedLanguageModel:
    """Write a folder that transformers loads.

    Args:
        checkpoint: of a training with one of `ARCHITECTURES`.
        tokenizer: of its pieces: a folder of vokens, or a tokenizer's, or its name on the hub.
        folder: to write; an older one of this kind is replaced.

    Raises:
        InputError: the checkpoint is another model's, the tokenizer isn't that of its dictionary, or the folder can't
            be written.
    """
    state = load_checkpoint(checkpoint)
    arch = architecture(state) or ""
    kept = next((each for name, each in ARCHITECTURES.items() if f"{arch}_".startswith(f"{name}_")), None)
    if kept is None:
        raise InputError(
            f"{checkpoint} should be of --arch {', '.join(ARCHITECTURES)}, or a preset of one, but is of "
            f"{arch or 'none'}. Others don't become a language model of transformers."
        )
    weights = {name: weight.float() for name, weight in state["model"].items() if not name.startswith(kept.left_out)}
    bridge = _bridge(tokenizer)
    words = weights.get(kept.body + WORDS, torch.zeros(0, 1))
    symbols = [*bridge.symbols, *(f"madeupword{n:04d}" for n in range(len(words) - len(bridge)))]
    learned = dictionaries(state).get(kept.dictionary)
    if len(symbols) != len(words) or learned not in (None, digest_of_symbols(symbols)):
        raise InputError(
            f"{tokenizer} should have the tokenizer whose pieces {checkpoint} was trained on, {len(words)} with "
            f"fairseq's padding words, but its {len(bridge)} pieces are others, or in another order.",
            "tokenizer",
        )
    remembered = (state.get("task_state") or {}).get("vokens")
    cut = remembered.get("tokenizer_sha256") if isinstance(remembered, Mapping) else None
    if cut not in (None, bridge.sha256):
        raise InputError(
            f"{tokenizer} has the pieces of {checkpoint}, but cuts text in another way than what it was trained on: "
            f"sha256 {bridge.sha256[:8]}… ≠ {cut!s:.8}…. Give the folder of its vokens.",
            "tokenizer",
        )
    reads = EncoderInput(bridge, symbols, str(checkpoint))
    with reading(checkpoint, f"a checkpoint of --arch {arch}"):  # whose settings may be anything
        model = _model(kept, weights, _choices(state), reads, bridge, checkpoint)
    signed = signature(LANGUAGE_MODEL, arch=arch, checkpoint=sha256_of_file(checkpoint)[:8], pieces=bridge.sha256[:8])
    positions = model.config.max_position_embeddings
    if kept.family.positions_after_padding:
        positions -= model.config.pad_token_id + 1
    write_folder(folder, lambda beside: _write(beside, model, bridge.tokenizer, positions, signed), _stays)
    head = "with" if _has_head(weights) else "without"
    config = model.config
    summary = (
        f"{type(model).__name__}, {config.num_hidden_layers} layers of {config.hidden_size}, {config.vocab_size} "
        f"pieces, {head} a head for masked words"
    )
    return ExportedLanguageModel(summary, signed)


def _bridge(tokenizer: str) -> TokenizerBridge:
    """Of a folder of vokens, or of a tokenizer."""
    try:
        said = read_json(Path(tokenizer) / META)
    except (OSError, ValueError):
        said = None
    vokens = isinstance(said, dict) and said.get("format") == VOKENS
    return Vokens(tokenizer).bridge() if vokens else TokenizerBridge(tokenizer)


def _choices(state: Mapping[str, Any]) -> dict[str, Any]:
    flags: Any = (state.get("cfg") or {}).get("model") or state.get("args")
    known = flags if isinstance(flags, Namespace) else Namespace(**flags)
    choices: dict[str, Any] = json.loads(known.bert_config)
    return choices


def _has_head(weights: Mapping[str, Tensor]) -> bool:
    return HEAD + BIAS in weights


def _model(
    kept: _Kept,
    weights: Mapping[str, Tensor],
    choices: dict[str, Any],
    reads: EncoderInput,
    bridge: TokenizerBridge,
    checkpoint: Path,
) -> Any:
    """transformers' own model, with the weights of a checkpoint in the tokenizer's order."""
    family = kept.family
    pieces = int(bridge.tokenizer_ids.max()) + 1
    numbers = {name: int(bridge.tokenizer_ids[role]) for name, role in (("pad", PAD), ("bos", BOS), ("eos", EOS))}
    special = {f"{name}_token_id": number for name, number in numbers.items() if number != NONE}
    body = {name.removeprefix(kept.body): each for name, each in weights.items() if name.startswith(kept.body)}
    own = {family.prefix + name: weight for name, weight in body.items()}
    own |= {their: weights[HEAD + name] for name, their in family.head.items() if HEAD + name in weights}
    for name in (family.prefix + WORDS, family.head[BIAS]):
        if name in own:
            own[name] = reads.tokenizer_rows(own[name], own[name].new_zeros(pieces, *own[name].shape[1:]))
    if family.positions_after_padding and family.prefix + POSITIONS in own:
        positions = shift_positions(own[family.prefix + POSITIONS], PAD, special.get("pad_token_id", PAD))
        own[family.prefix + POSITIONS] = positions
        choices = {**choices, "max_position_embeddings": len(positions)}
    if choices.get("num_hidden_layers", 0) > len(weights):
        raise ValueError(f"it has {choices['num_hidden_layers']} layers, and {len(weights)} weights")
    config = family.part(0)(**choices, vocab_size=pieces, **special)
    whole = _has_head(weights)
    if not whole:
        own = {name.removeprefix(family.prefix): weight for name, weight in own.items()}

    def build() -> Any:
        return family.part(2)(config) if whole else family.part(1)(config, add_pooling_layer=False)

    with torch.device("meta"):  # claims no memory: sizes that don't belong to the weights are refused first
        planned = build()
    other = "It was made by another version of this package."
    check_weights_fit(dict(planned.named_parameters()), own, checkpoint, type(planned).__name__, other)
    model = build()
    wanted = dict(model.named_parameters())  # a tied one once
    with torch.no_grad():
        for name, weight in wanted.items():
            weight.copy_(own[name])
    return model.eval()


def _write(folder: Path, model: Any, tokenizer: Any, positions: int, signed: str) -> None:
    stayed = {path.name for path in folder.iterdir()}
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    tokenizer.save_pretrained(folder)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    state = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
    # transformers asks for the format; safetensors' own `save_file` would let only the owner read it.
    (folder / WEIGHTS).write_bytes(save(state, metadata={"format": "pt"}))
    files = sorted(path.name for path in folder.iterdir() if path.name not in stayed)
    said = {"format": LANGUAGE_MODEL, "version": FORMAT_VERSION, "signature": signed, "files": files}
    write_json(folder / META, said)


def _stays(folder: Path) -> set[str]:
    """What lies in a language model's folder beside it.

    Raises:
        InputError: the folder holds other things, and no language model that was exported.
    """
    found = {path.name for path in folder.iterdir()}
    try:
        said = read_json(folder / META)
        own = set(map(str, said["files"])) if said["format"] == LANGUAGE_MODEL else set()
    except (OSError, ValueError, KeyError, TypeError):
        own = set()
    if found and not own:
        raise InputError(
            f"{folder} should be a new folder or that of an exported language model, but it holds {len(found)} other "
            f"things, such as {min(found)}. Choose another place.",
            "out",
        )
    return found - own - {META}
