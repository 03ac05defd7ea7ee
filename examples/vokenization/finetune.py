"""Fine-tune a language model on a task with transformers' Trainer, and measure it: sentences, choices, questions.

    python finetune.py --model exported/voken --task sst2 --data out/tasks/sst2 --seed 1 --out scores/sst2.json

Settings are the paper's (VOK §4.2): 3 epochs; learning rate 1e-4, batch 32 and a tenth of the steps to warm up for
sentences, 5e-5 and 32 for questions, 2e-5 and 16 for choices, which warm up alike here, although it doesn't say so. The
last weights are measured, on rows that nothing was chosen by.
"""

import argparse
import json
import os
import string
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

from visual_grounding.fairseq_plugin import choose_products
from visual_grounding.storage.artefact import write_json

SENTENCES, CHOICES, QUESTIONS = "sentences", "choices", "questions"
KINDS = {"codah": CHOICES, "xquad": QUESTIONS}  # all others are of sentences
SETTINGS = {SENTENCES: (1e-4, 32, 0.1), CHOICES: (2e-5, 16, 0.1), QUESTIONS: (5e-5, 32, 0.1)}
LENGTH = 128  # pieces, as in pre-training
STRIDE = 48  # pieces that two parts of a context share
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}  # whatever pre-training had


def main() -> int:
    """Fine-tune and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of `export --to transformers`, or any of transformers")
    parser.add_argument("--task", required=True, help="its name, which decides what is measured")
    parser.add_argument("--data", type=Path, required=True, help="its folder of texts.py")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--epochs", type=float, default=3, help="(default: %(default)s)")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--random", action="store_true", help="begin with random weights of the model's sizes")
    start.add_argument(
        "--noise-like",
        metavar="MODEL",
        help="add noise to all weights first, of the size by which this one's differ (VOK Table 3)",
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    choose_products()  # MATMUL of `steps.sh`
    set_seed(args.seed)
    rows = {part: read_jsonl(args.data / f"{part}.jsonl") for part in ("train", "dev")}
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    kind = KINDS.get(args.task, SENTENCES)
    run = {SENTENCES: sentences, CHOICES: choices, QUESTIONS: questions}[kind]
    scores = run(args, rows, tokenizer)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    said = {"task": args.task, "seed": args.seed, "rows": len(rows["dev"]), **scores}
    write_json(args.out, said)
    print(said)
    return 0


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Rows of a task."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def begin(args: argparse.Namespace, auto_class: Any, **options: Any) -> tuple[Any, dict[str, float]]:
    """The model to fine-tune, and what there is to say of its weights.

    The layer that reads [CLS] for a label, the pooler, is new in every row: language models of `export` have none, and
    Table 3 would otherwise compare one that was trained with one that wasn't.
    """
    options |= DROPOUT
    fresh = auto_class.from_config(AutoConfig.from_pretrained(args.model, **options))
    if args.random:
        return fresh, {}
    model, said = auto_class.from_pretrained(args.model, output_loading_info=True, **options)
    if getattr(model.base_model, "pooler", None) is not None:
        model.base_model.pooler.load_state_dict(fresh.base_model.pooler.state_dict())
    if not args.noise_like:
        return model, {}
    like, said_of_like = AutoModel.from_pretrained(args.noise_like, output_loading_info=True)
    other = dict(like.named_parameters())
    unread = {name.removeprefix(f"{model.base_model_prefix}.") for name in said["missing_keys"]}
    pairs = [
        (weight, other[name])
        for name, weight in model.base_model.named_parameters()
        if name in other and not name.startswith("pooler.") and name not in unread | set(said_of_like["missing_keys"])
    ]
    squares = sum((weight - like).detach().square().sum() for weight, like in pairs)
    size = float((squares / sum(weight.numel() for weight, _ in pairs)) ** 0.5)
    generator = torch.Generator().manual_seed(args.seed)
    with torch.no_grad():
        for weight, _ in pairs:
            weight += size * torch.randn(weight.shape, generator=generator)
    return model, {"noise": size}


def trained(args: argparse.Namespace, model: Any, train: Any, collate: Callable[..., Any], kind: str) -> Trainer:
    """A trainer that has trained."""
    rate, batch, warmup = SETTINGS[kind]
    steps = -(-len(train) // batch) * args.epochs
    settings = TrainingArguments(
        output_dir=str(args.out.with_suffix(".trainer")),
        num_train_epochs=args.epochs,
        learning_rate=rate,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=64,
        warmup_steps=int(warmup * steps),
        seed=args.seed,
        # Beside sentences of their length, where one is long: half as much to pad, and to compute.
        train_sampling_strategy="group_by_length" if kind == SENTENCES else "random",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_steps=max(1, int(steps // 6)),
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
        remove_unused_columns=False,
    )
    trainer = Trainer(model, settings, data_collator=collate, train_dataset=train)
    trainer.train()
    return trainer


def sentences(args: argparse.Namespace, rows: dict[str, list[dict]], tokenizer: Any) -> dict[str, Any]:
    """One or two sentences and a label, or a grade."""
    graded = args.task == "stsb"
    names = sorted({row["label"] for row in rows["train"]})
    numbers = {name: number for number, name in enumerate(names)}
    options = {"num_labels": 1, "problem_type": "regression"} if graded else {"num_labels": len(names)}
    model, said_of_weights = begin(args, AutoModelForSequenceClassification, **options)

    def encode(row: dict[str, str]) -> dict[str, Any]:
        pieces = tokenizer(row["text"], row.get("pair"), truncation=True, max_length=LENGTH)
        return {**pieces, "labels": float(row["label"]) if graded else numbers[row["label"]]}

    data = {part: [encode(row) for row in rows[part]] for part in rows}
    trainer = trained(args, model, data["train"], DataCollatorWithPadding(tokenizer), SENTENCES)
    found = trainer.predict(data["dev"])  # in an order of its own, by length
    said, answers = found.predictions, found.label_ids
    scores = grade_scores(said[:, 0], answers) if graded else label_scores(args.task, said.argmax(axis=1), answers)
    return {**scores, **said_of_weights}


def label_scores(task: str, said: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    """Accuracy; for paraphrases the mean of it and of F1, as in the paper."""
    right = said == answers
    scores = {"accuracy": float(right.mean()), "score": float(right.mean())}
    if task in ("qqp", "mrpc"):
        true = int((right & (answers == 1)).sum())
        scores["f1"] = 2 * true / max(1, int((said == 1).sum() + (answers == 1).sum()))
        scores["score"] = (scores["accuracy"] + scores["f1"]) / 2
    return scores


def grade_scores(said: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    """Mean of Pearson's and Spearman's correlation."""
    from scipy.stats import pearsonr, spearmanr

    found = {"pearson": float(pearsonr(said, answers)[0]), "spearman": float(spearmanr(said, answers)[0])}
    return {**found, "score": (found["pearson"] + found["spearman"]) / 2}


def choices(args: argparse.Namespace, rows: dict[str, list[dict]], tokenizer: Any) -> dict[str, Any]:
    """A beginning and several endings, of which one is right."""
    model, said_of_weights = begin(args, AutoModelForMultipleChoice)

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        endings = row["endings"]
        pieces = tokenizer([row["text"]] * len(endings), endings, truncation=True, max_length=LENGTH)
        return {"pieces": pieces, "label": int(row["label"])}

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        flat = [
            {name: values[number] for name, values in row["pieces"].items()}
            for row in batch
            for number in range(len(row["pieces"]["input_ids"]))
        ]
        padded = tokenizer.pad(flat, return_tensors="pt")
        shaped = {name: value.view(len(batch), -1, value.shape[1]) for name, value in padded.items()}
        return {**shaped, "labels": torch.tensor([row["label"] for row in batch])}

    data = {part: [encode(row) for row in rows[part]] for part in rows}
    trainer = trained(args, model, data["train"], collate, CHOICES)
    found = trainer.predict(data["dev"])
    answers = np.array([row["label"] for row in data["dev"]])
    return {**label_scores(args.task, found.predictions.argmax(axis=1), answers), **said_of_weights}


def questions(args: argparse.Namespace, rows: dict[str, list[dict]], tokenizer: Any) -> dict[str, Any]:
    """Where in a context a question's answer stands (SQuAD v1.1's way)."""
    model, said_of_weights = begin(args, AutoModelForQuestionAnswering)
    collator = DataCollatorWithPadding(tokenizer)

    def encode(row: dict[str, Any], number: int) -> list[dict[str, Any]]:
        cut = tokenizer(
            row["question"], row["context"], truncation="only_second", max_length=LENGTH, stride=STRIDE,
            return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        start = row["answers"][0][0]
        stop = start + len(row["answers"][0][1])
        parts = []
        for part, offsets in enumerate(cut["offset_mapping"]):
            inside = [place for place, side in enumerate(cut.sequence_ids(part)) if side == 1]
            covered = [place for place in inside if offsets[place][0] < stop and offsets[place][1] > start]
            whole = covered and offsets[covered[0]][0] <= start and offsets[covered[-1]][1] >= stop
            places = (covered[0], covered[-1]) if whole else (0, 0)  # [CLS]: the answer isn't in this part
            pieces = {name: cut[name][part] for name in tokenizer.model_input_names if name in cut}
            shown = {place: offsets[place] for place in inside}
            parts.append({"pieces": pieces, "places": places, "row": number, "shown": shown})
        return parts

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        padded = dict(collator([part["pieces"] for part in batch]))
        padded["start_positions"], padded["end_positions"] = torch.tensor([part["places"] for part in batch]).T
        return padded

    data = {
        part: [each for number, row in enumerate(rows[part]) for each in encode(row, number)]
        for part in ("train", "dev")
    }
    trainer = trained(args, model, data["train"], collate, QUESTIONS)
    starts, ends = trainer.predict(data["dev"]).predictions[:2]
    best: dict[int, tuple[float, str]] = {}
    for part, start, end in zip(data["dev"], starts, ends):
        for score, first, last in best_spans(start, end, part["shown"]):
            context = rows["dev"][part["row"]]["context"]
            text = context[part["shown"][first][0] : part["shown"][last][1]]
            best[part["row"]] = max(best.get(part["row"], (-np.inf, "")), (score, text))
    exact, overlap = zip(
        *(
            max(answer_scores(best.get(number, (0.0, ""))[1], text) for _, text in row["answers"])
            for number, row in enumerate(rows["dev"])
        )
    )
    means = float(np.mean(exact)), float(np.mean(overlap))
    return {"exact": means[0], "f1": means[1], "score": means[1], **said_of_weights}


def best_spans(
    start: np.ndarray, end: np.ndarray, shown: dict[int, tuple[int, int]], count: int = 20, longest: int = 30
) -> list[tuple[float, int, int]]:
    """The likeliest span of a context: score, first piece, last piece; none where there is no context."""
    places = np.array(sorted(shown))
    if not len(places):
        return []
    firsts = places[np.argsort(-start[places])[:count]]
    lasts = places[np.argsort(-end[places])[:count]]
    found = [
        (float(start[first] + end[last]), int(first), int(last))
        for first in firsts
        for last in lasts
        if first <= last < first + longest
    ]
    return [max(found)] if found else []


def answer_scores(said: str, answer: str) -> tuple[float, float]:
    """Exact match and F1 of words, without articles and punctuation, as SQuAD's own program has them.

    >>> answer_scores("the Denver Broncos!", "Denver Broncos"), answer_scores("Denver", "Denver Broncos")
    ((1.0, 1.0), (0.0, 0.6666666666666666))
    """
    words = [normalised(text).split() for text in (said, answer)]
    common = (Counter(words[0]) & Counter(words[1])).total()
    overlap = 2 * common / max(1, len(words[0]) + len(words[1])) if common else float(words[0] == words[1])
    return float(words[0] == words[1]), overlap


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(word for word in kept.split() if word not in ("a", "an", "the"))


if __name__ == "__main__":
    sys.exit(main())
