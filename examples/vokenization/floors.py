"""What the rest stands on: do tokens find their photos, and which vokens are told without reading?

    python floors.py --matcher matchers/tokens --control matchers/shuffled --photos photos \\
        --captions captions/valid.tsv --train vokens/train --valid vokens/valid --out floors.json

The recall of single tokens at 10 among the development photos, with a 95 % interval by a bootstrap over photos: its
lower end should be three times the recall of the control, a matcher that learned from captions of other photos. A
model's voken accuracy on kept-out text should be above the commonest voken where a piece is masked, and above the
commonest voken of that piece where it isn't. `table.py` compares. The perplexity of who knows alone how frequent pieces
are is what those of language models are to be read beside.
"""

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.recall import ranks_among
from visual_grounding.retrieval.retriever import Retriever
from visual_grounding.retrieval.token_matcher import TokenMatcherRetriever
from visual_grounding.storage.artefact import write_json
from visual_grounding.text.captions import read_captions
from visual_grounding.vokenization.commonest_vokens import commonest_vokens
from visual_grounding.vokenization.vokens import Vokens

SAMPLES, AT, TIMES = 2000, 10, 3


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matcher", type=Path, required=True, help="exported")
    parser.add_argument("--control", type=Path, required=True, help="likewise, of shuffled captions")
    parser.add_argument("--photos", type=Path, required=True, help="feature store")
    parser.add_argument("--captions", type=Path, required=True, help="of the development photos, key<TAB>caption")
    parser.add_argument("--train", type=Path, required=True, help="vokens that models learn from")
    parser.add_argument("--valid", type=Path, required=True, help="of the text kept out")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    args = parser.parse_args()
    store = FeatureStore(args.photos)
    captions = read_captions(args.captions)
    recall = {
        name: token_recall(Retriever.load(folder), store, captions)
        for name, folder in (("matcher", args.matcher), ("control", args.control))
    }
    train, valid = Vokens(args.train), Vokens(args.valid)
    floors = commonest_vokens(train, valid)
    found = {
        "recall": recall,
        "recall_times": TIMES,
        "commonest_voken": floors.overall,
        "commonest_voken_of_piece": floors.of_piece,
        "unigram_perplexity": unigram_perplexity(train, valid),
    }
    write_json(args.out, found)
    print(json.dumps(found, indent=2))
    return 0


def unigram_perplexity(train: Vokens, valid: Vokens) -> float:
    """Of one text's pieces by how often each is in another, each of either counted once more."""
    known, asked = (Counter(piece for line in text.token_lines() for piece in line.split()) for text in (train, valid))
    pieces = known.keys() | asked.keys()
    bits = sum(times * math.log2(known[piece] + 1) for piece, times in asked.items()) / asked.total()
    return 2 ** (math.log2(known.total() + len(pieces)) - bits)


@torch.inference_mode()
def token_recall(retriever: Retriever, store: FeatureStore, captions: list[tuple[str, str]]) -> dict[str, float]:
    """Recall at 10 of all tokens of the captions, special pieces aside, among the photos that they describe."""
    if not isinstance(retriever, TokenMatcherRetriever):
        raise SystemExit(f"{retriever.folder} should be a matcher of tokens")
    keys = list(dict.fromkeys(key for key, _ in captions))
    rows = store.rows_of(keys)
    features, absent = store.gather(np.array([[rows[key]] for key in keys]))  # (I, 1, R, F), (I, 1, R)
    images = retriever.encode_images(torch.from_numpy(features[:, 0]).float(), torch.from_numpy(absent[:, 0]))
    place = {key: number for number, key in enumerate(keys)}
    vectors, answers = [], []
    around = torch.tensor(sorted(retriever.tokenizer.around))
    for start in range(0, len(captions), 256):
        part = captions[start : start + 256]
        numbers = retriever.tokenize([caption for _, caption in part])[0]
        tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in numbers], batch_first=True)
        padding = torch.arange(tokens.shape[1]) >= torch.tensor([[len(each)] for each in numbers])
        real = ~padding & ~torch.isin(tokens, around)
        vectors.append(retriever.embed_tokens(tokens, padding)[real])
        answers.append(torch.tensor([place[key] for key, _ in part]).unsqueeze(1).expand(real.shape)[real])
    photo = torch.cat(answers)
    right = (ranks_among(torch.cat(vectors), images, photo) <= AT).double().numpy()
    hits, counts = (
        np.bincount(photo.numpy(), weights=each, minlength=len(keys)) for each in (right, np.ones_like(right))
    )
    drawn = np.random.default_rng(0).integers(len(keys), size=(SAMPLES, len(keys)))
    low, high = np.quantile(hits[drawn].sum(1) / counts[drawn].sum(1), [0.025, 0.975])
    return {
        "recall": float(right.mean()),
        "low": float(low),
        "high": float(high),
        "tokens": len(right),
        "photos": len(keys),
    }


if __name__ == "__main__":
    sys.exit(main())
