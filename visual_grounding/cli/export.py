"""Retriever checkpoint -> retriever folder that loads without fairseq: config.json, model.safetensors, tokenizer files.

  visual-grounding export --checkpoint checkpoints/checkpoint_best.pt --data data/captions --out retriever
  visual-grounding export --checkpoint checkpoints/matcher/checkpoint_best.pt --out vokenizer
  visual-grounding export --dual-encoder openai/clip-vit-base-patch32 --out retriever

--data is the folder that the retriever was trained on (made by `prepare`): its dict.txt goes along. A retriever with a
pretrained text encoder, as a token-image matcher always has, doesn't need it; that encoder's configuration and
tokenizer go along instead. A network that was trained along (--image-folder) goes along too. The folder remembers how
the features were made that it was trained on, so that `index` refuses others. An older retriever in --out is replaced
once the new one is whole.

--dual-encoder makes a retriever of a pretrained CLIP, SigLIP or SigLIP 2 without any training, and needs no fairseq.
Its images are a store made by `extract --backbone clip:NAME --pool own` with the same NAME or folder.
"""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="of --arch visual_semantic_embedding or token_image_matching"
    )
    source.add_argument(
        "--dual-encoder", metavar="NAME|FOLDER", help="a CLIP or SigLIP: its name on the hub, or a local folder"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder with dict.txt, where words were learned")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="retriever folder to write")


def run(args: argparse.Namespace) -> None:
    """Export, and say what can't be checked later.

    Raises:
        InputError: flags that exclude each other, or what can't be read, used or written.
    """
    from ..errors import InputError

    if args.dual_encoder is not None and args.data is not None:
        raise InputError(f"--data {args.data} belongs to --checkpoint; --dual-encoder brings its own tokenizer.")
    if args.dual_encoder is not None:
        from ..retrieval.export_dual_encoder import export_dual_encoder

        exported = export_dual_encoder(args.dual_encoder, args.out)
    else:
        from ..retrieval.export import export_checkpoint

        exported = export_checkpoint(args.checkpoint, args.out, args.data)
    print(f"{args.out}: {exported.summary}\n{exported.signature}")
    if not exported.remembers_features:
        print(
            f"warning: {args.checkpoint} doesn't say how the features that it was trained on were made, so `index` "
            "won't notice others of the same size. Checkpoints of trainings from now on say it.",
            file=sys.stderr,
        )
