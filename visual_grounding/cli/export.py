"""Retriever checkpoint -> retriever folder that loads without fairseq: config.json, model.safetensors, tokenizer files.

  visual-grounding export --checkpoint checkpoints/checkpoint_best.pt --data data/captions --out retriever
  visual-grounding export --dual-encoder openai/clip-vit-base-patch32 --out retriever

--data is the folder that the retriever was trained on (made by `prepare`): its dict.txt goes along. A retriever with a
pretrained text encoder doesn't need it; that encoder's configuration and tokenizer go along instead. A network that was
trained along (--image-folder) goes along too.

--dual-encoder makes a retriever of a pretrained CLIP, SigLIP or SigLIP 2 without any training, and needs no fairseq.
Its images are a store made by `extract --backbone clip:NAME --pool own` with the same NAME or folder.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", type=Path, metavar="FILE", help="of --arch visual_semantic_embedding")
    source.add_argument(
        "--dual-encoder", metavar="NAME|FOLDER", help="a CLIP or SigLIP: its name on the hub, or a local folder"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder with dict.txt, where words were learned")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="retriever folder to write")


def run(args: argparse.Namespace) -> None:
    """Export."""
    (_checkpoint if args.dual_encoder is None else _dual_encoder)(args)


def _dual_encoder(args: argparse.Namespace) -> None:
    from ..errors import InputError
    from ..retrieval.dual_encoder import export_dual_encoder

    if args.data is not None:
        raise InputError(f"--data {args.data} belongs to --checkpoint; --dual-encoder brings its own tokenizer.")
    config, made = export_dual_encoder(args.dual_encoder, args.out)
    sizes = f"joint size {config.joint_size}, sentences of up to {config.max_tokens} tokens"
    print(f"{args.out}: {config.dual_encoder} text tower, {sizes}\n{made}")


def _checkpoint(args: argparse.Namespace) -> None:
    from ..errors import InputError
    from ..modules.joint_embedding import WORD_ENCODERS, JointEmbedding, config_of_state
    from ..modules.sentence_encoders import build_pretrained_encoder
    from ..retrieval.retriever import load_weights, save_retriever, split_image_network
    from ..storage.artefact import sha256_of_file
    from ..storage.checkpoints import load_checkpoint
    from ..storage.signature import signature
    from ..text.pretrained_tokenizer import PretrainedTokenizer
    from ..text.words import DICTIONARY, Vocabulary, WordTokenizer

    checkpoint = load_checkpoint(args.checkpoint)
    choices = (checkpoint.get("cfg") or {}).get("model") or {}
    architecture = choices.get("_name") if isinstance(choices, dict) else getattr(choices, "arch", None)
    if architecture != "visual_semantic_embedding":
        raise InputError(
            f"{args.checkpoint} should be of --arch visual_semantic_embedding, but is of {architecture!r}. "
            "Only retrievers are exported."
        )
    prefix = "embedding."
    weights, image_network = split_image_network(checkpoint["model"])
    state = {name.removeprefix(prefix): weight.float() for name, weight in weights.items()}
    config = config_of_state(state, choices)
    name = choices["text_encoder"]
    if name in WORD_ENCODERS:
        if args.data is None:
            raise InputError(f"--data DIR is needed: the words of text encoder {name!r} are in its {DICTIONARY}.")
        vocabulary = Vocabulary.load(args.data / DICTIONARY)
        if len(vocabulary) != config.vocabulary_size:
            raise InputError(
                f"{args.data / DICTIONARY} should have the {config.vocabulary_size} words and symbols of "
                f"{args.checkpoint}, but has {len(vocabulary)}. Give the folder that it was trained on as --data."
            )
        embedding = JointEmbedding(config)
        tokenizer: WordTokenizer | PretrainedTokenizer = WordTokenizer(vocabulary)
    else:
        embedding = JointEmbedding(config, build_pretrained_encoder(name))
        tokenizer = PretrainedTokenizer(name)
    load_weights(embedding, state, str(args.checkpoint))
    trained = signature("retriever", text=config.text_encoder, checkpoint=sha256_of_file(args.checkpoint)[:8])
    save_retriever(args.out, embedding, tokenizer, trained, image_network)
    network = "" if image_network is None else f", {image_network.name} trained along"
    print(f"{args.out}: {config.text_encoder} text encoder, joint size {config.joint_size}{network}\n{trained}")
