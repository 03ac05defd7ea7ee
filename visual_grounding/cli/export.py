"""A checkpoint -> a folder that loads without fairseq: a retriever, or a language model for transformers.

  visual-grounding export --checkpoint checkpoints/checkpoint_best.pt --data data/captions --out retriever
  visual-grounding export --checkpoint checkpoints/matcher/checkpoint_best.pt --out vokenizer
  visual-grounding export --dual-encoder openai/clip-vit-base-patch32 --out retriever
  visual-grounding export --checkpoint checkpoints/lm/checkpoint_best.pt --to transformers --tokenizer vokens/train \
      --out model

A retriever is config.json, model.safetensors, tokenizer files. --data is the folder that it was trained on (made by
`prepare`): its dict.txt goes along. A retriever with a pretrained text encoder, as a matcher of tokens always has,
doesn't need it; that encoder's configuration and tokenizer go along instead. A network that was trained along
(--image-folder) goes along too. The folder remembers how the features were made that it was trained on, so that `index`
refuses others. An older retriever in --out is replaced once the new one is whole.

--dual-encoder makes a retriever of a pretrained CLIP, SigLIP or SigLIP 2 without any training, and needs no fairseq.
Its images are a store made by `extract --backbone clip:NAME --pool own` with the same NAME or folder.

--to transformers writes the BERT or RoBERTa of --arch voken_bert, voken_roberta or vlp_bert as AutoModel,
AutoModelForMaskedLM and the like load it, with the files of its tokenizer: --tokenizer names the vokens, or the
tokenizer, that its text was cut by. What is there for images or vokens alone is left out.
"""

import argparse
from pathlib import Path

from ..errors import InputError, warn

TARGETS = ("retriever", "transformers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoint", type=Path, metavar="FILE", help="of fairseq-train")
    source.add_argument(
        "--dual-encoder", metavar="NAME|FOLDER", help="a CLIP or SigLIP: its name on the hub, or a local folder"
    )
    parser.add_argument("--to", choices=TARGETS, default="retriever", help="what to make of it (default: retriever)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder with dict.txt, where words were learned")
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="--to transformers needs it: vokens of the model's text, or their tokenizer"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")


def run(args: argparse.Namespace) -> None:
    """Export, and say what can't be checked later.

    Raises:
        InputError: flags that exclude each other, or what can't be read, used or written.
    """
    if args.dual_encoder is not None and args.data is not None:
        raise InputError(f"--data {args.data} belongs to --checkpoint; --dual-encoder brings its own tokenizer.")
    if args.to == "transformers":
        _to_transformers(args)
        return
    if args.tokenizer is not None:
        raise InputError(f"--tokenizer {args.tokenizer} belongs to --to transformers; a retriever has its own.")
    if args.dual_encoder is not None:
        from ..retrieval.export_dual_encoder import export_dual_encoder

        exported = export_dual_encoder(args.dual_encoder, args.out)
    else:
        from ..retrieval.export import export_checkpoint

        exported = export_checkpoint(args.checkpoint, args.out, args.data)
    print(f"{args.out}: {exported.summary}\n{exported.signature}")
    if not exported.remembers_features:
        warn(
            f"{args.checkpoint} doesn't say how the features that it was trained on were made, so `index` "
            "won't notice others of the same size. Checkpoints of trainings from now on say it."
        )


def _to_transformers(args: argparse.Namespace) -> None:
    from ..vokenization.language_model_folder import export_language_model

    for flag, value in (("--dual-encoder", args.dual_encoder), ("--data", args.data)):
        if value is not None:
            raise InputError(
                f"{flag} {value} is for a retriever; --to transformers takes --checkpoint and --tokenizer."
            )
    if args.tokenizer is None:
        raise InputError(
            "the tokenizer that cut the model's text is needed, too: a folder of vokens, or the tokenizer's own.",
            "tokenizer",
        )
    exported = export_language_model(args.checkpoint, args.tokenizer, args.out)
    print(f"{args.out}: {exported.summary}\n{exported.signature}")
