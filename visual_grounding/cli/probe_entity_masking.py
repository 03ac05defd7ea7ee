"""Hide words of the source, such as its nouns, from a trained translator, and see what its images are worth then.

    visual-grounding probe entity-masking --checkpoint checkpoints/checkpoint_best.pt --positions test.nouns \\
        --text test.en --reference test.de --image-order congruent shuffled --out probes/nouns

FILE of --positions has one line a sentence: the numbers of the words to hide, counted from 0, or -1 for none. Words are
what stands between spaces in --text, the source before it was cut into pieces. Each sentence that has positions is
translated as it is (unmasked), with one mask in the place of each of these words (mask), and without them (remove). The
mask is <mask> or [MASK], whichever the dictionary has. Reported: BLEU and chrF as `evaluate` computes them, each with
a bootstrap interval; how much is lost by hiding; the first image order against the others; the model against its twin.
A twin that was trained without images translates without.

DIR/results.json has all numbers, DIR/translations.tsv the translations.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InputError, check_at_least_one, warn
from .probing import PACKAGES, add_model, add_running, changes_of, check_running, shown, write_results
from .scoring import aligned, meta_of

if TYPE_CHECKING:
    from ..analysis.intervals import ResampledScore
    from ..analysis.translation_scores import TextForms

    Resampled = Mapping[str, ResampledScore]  # scores by name

FORMS = ("tokenised", "raw")
TRANSLATIONS = "translations.tsv"
_SHOWN = ("tokenised_bleu", "sacrebleu")
_MOST_HIDDEN = 20


class Run(NamedTuple):
    """One way of translating: which model, which images, which source."""

    system: str
    images: str
    source: str

    def __str__(self) -> str:
        """As one name, of a column."""
        return ".".join(self)


_MOST_LENPEN = 100  # a length to this power is still a number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the words to hide, and how to translate."""
    add_model(parser, twin=True)
    parser.add_argument(
        "--positions", type=Path, required=True, metavar="FILE", help="words to hide, one line a sentence"
    )
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="the source, whose words they number")
    parser.add_argument(
        "--bpe-tokenizer", metavar="NAME", help="the pretrained tokenizer that cut the text; byte-level pieces need it"
    )
    parser.add_argument("--reference", type=Path, required=True, metavar="FILE", help="translations by people")
    parser.add_argument("--reference-is", choices=FORMS, default="tokenised", help="text of --reference")
    parser.add_argument("--hypothesis-is", choices=FORMS, default="tokenised", help="text that the model writes")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="as fairseq-generate's (default: 5)")
    parser.add_argument("--lenpen", type=float, default=1.0, metavar="X", help="as fairseq-generate's (default: 1)")
    parser.add_argument("--max-len-a", type=float, default=0.0, metavar="A", help="at most A · source + B tokens (0)")
    parser.add_argument("--max-len-b", type=int, default=200, metavar="B", help="see --max-len-a (default: 200)")
    add_running(parser)


def run(args: argparse.Namespace) -> None:
    """Translate every way, score, print a table, write the same as JSON.

    Raises:
        InputError: files that don't belong together, or no sentence has positions.
    """
    from ..analysis.hypotheses import read_references
    from ..analysis.significance import resample_scores
    from ..analysis.translation_scores import signatures, text_forms
    from ..probes.entity_masking import hidden_words
    from ..shares import warn_of
    from ..storage.lines import check_read_again, read_lines
    from ..text.word_positions import check_positions, read_positions

    check_running(args)
    check_at_least_one(beam=args.beam, max_len_b=args.max_len_b)
    if abs(args.lenpen) > _MOST_LENPEN:
        raise InputError(
            f"the length penalty should be between {-_MOST_LENPEN} and {_MOST_LENPEN}, but is {args.lenpen:g}.",
            "lenpen",
        )
    if args.max_len_a < 0:
        raise InputError(f"tokens of a source token should be 0 or more, but are {args.max_len_a:g}.", "max_len_a")
    check_read_again(args.text, args.positions, args.reference)
    lines = read_lines(args.text)
    positions = read_positions(args.positions)
    check_positions(positions, lines, str(args.positions), str(args.text))
    references = read_references(args.reference)
    chosen = [row for row, words in enumerate(positions) if words]
    if not chosen:
        raise InputError(f"{args.positions} should name words of some sentence, but names none.", "positions")
    found, rows, language = _translate(args, lines, positions, references, chosen)
    for warning in warn_of(
        len(chosen) - len(rows), len(chosen), f"with positions are left out: {args.text} has them in other letters."
    ):
        warn(warning)
    right = text_forms([references[row] for row in rows], form=args.reference_is, language=language)
    forms = {
        each: text_forms([texts[row] for row in rows], form=args.hypothesis_is, language=language)
        for each, texts in found.items()
    }
    resampled = {
        each: resample_scores(ours, right, language=language, samples=args.bootstrap_samples, seed=args.seed)
        for each, ours in forms.items()
    }
    hidden = hidden_words(lines, rows, positions)
    report = {
        "probe": "entity-masking",
        "split": args.split,
        "target_lang": language,
        "sentences": len(lines),
        "with_positions": len(chosen),
        "without_positions": len(lines) - len(chosen),
        "left_out": len(chosen) - len(rows),
        "n": len(rows),
        "words": sum(len(lines[row].split()) for row in rows),
        "words_hidden": sum(hidden.values()),
        "most_hidden": [list(each) for each in hidden.most_common(_MOST_HIDDEN)],
        "runs": _scores(resampled, forms),
        "comparisons": _comparisons(resampled, len(rows)),
        "interval": f"95 %, bootstrap over sentences, {args.bootstrap_samples} resamplings, seed {args.seed}",
        "test": "paired bootstrap, p_value: share of resamplings where the first doesn't score higher",
        "signatures": signatures(language),
        "meta": meta_of(
            args, (args.checkpoint, args.twin_checkpoint, args.positions, args.text, args.reference), PACKAGES
        ),
    }
    write_results(args.out, report, {TRANSLATIONS: lambda path: _write_translations(path, rows, references, found)})
    print("\n".join(_table(report)))


def _translate(
    args: argparse.Namespace,
    lines: Sequence[str],
    positions: Sequence[frozenset[int]],
    references: Sequence[str],
    chosen: Sequence[int],
) -> tuple[dict[Run, dict[int, str]], list[int], str]:
    """Every run's translations, the sentences that all models can translate masked, and the target language."""
    from ..devices import choose_device
    from ..probes import entity_masking as probe
    from ..probes.trained import check_orders, check_seen, load_split, load_trained
    from ..progress import progress_bar
    from ..text.tokenizer_bridge import TokenizerBridge

    device = choose_device(args.device)
    bridge = TokenizerBridge(args.bpe_tokenizer) if args.bpe_tokenizer else None
    paths = {"model": args.checkpoint, "twin": args.twin_checkpoint}
    systems = {
        name: load_trained(path, "grounded_translation", device, changes_of(args), args.user_dir)
        for name, path in paths.items()
        if path is not None
    }
    check_orders(systems["model"], args.image_order)
    check_seen(list(systems.values()), changes_of(args))
    languages = {trained.settings.target_lang for trained in systems.values()}
    if len(languages) > 1:
        raise InputError(
            f"both models should translate into one language, but {args.checkpoint} and {args.twin_checkpoint} "
            f"translate into {' and '.join(sorted(languages))}.",
            "twin_checkpoint",
        )
    masks, sources, written = {}, {}, {}
    for name, trained in systems.items():
        masks[name] = probe.mask_of(trained.task.source_dictionary, str(trained.path))
        dataset = load_split(trained, args.split)
        written[name] = probe.writer_of(trained.task.target_dictionary, bridge)
        for warning in probe.check_references(
            trained, dataset, references, str(args.reference), args.split, written[name]
        ):
            warn(warning)
        sources[name] = probe.read_sources(trained, dataset, lines, str(args.text), bridge)
    rows = [row for row in chosen if all(row in each.words for each in sources.values())]
    if not rows:
        raise InputError(f"{args.text} has none of the sentences with positions as the split has them.", "text")
    found: dict[Run, dict[int, str]] = {}
    generation = {name: getattr(args, name) for name in ("beam", "lenpen", "max_len_a", "max_len_b")}
    orders = {name: args.image_order if trained.sees else ["none"] for name, trained in systems.items()}
    with progress_bar(len(rows) * len(probe.SOURCES) * sum(map(len, orders.values())), 0, "sentences") as bar:
        for name, trained in systems.items():
            for order in orders[name]:
                dataset = load_split(trained, args.split, order)
                for source in probe.SOURCES:
                    tokens = probe.masked_sources(sources[name], rows, positions, source, masks[name])
                    found[Run(name, order, source)] = probe.translate(
                        trained, dataset, tokens, args.split, args.batch_size, written[name], bar.update, **generation
                    )
    return found, rows, languages.pop()


def _scores(resampled: "Mapping[Run, Resampled]", forms: Mapping[Run, "TextForms"]) -> list[dict[str, Any]]:
    """Every run's scores with their intervals."""
    from ..analysis.intervals import interval_of

    found = []
    for each, scores in resampled.items():
        tokens = forms[each].tokens
        counts = {"n": len(tokens), "empty": sum(not sentence for sentence in tokens)}
        intervals = {name: interval_of(score)._asdict() for name, score in scores.items()}
        found.append({**each._asdict(), **counts, "scores": intervals})
    return found


def _pairs(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """What is compared: whole sources with masked ones, the first order with the others, the model with its twin."""
    first = {run.system: run.images for run in reversed(runs)}
    kinds: list[Callable[[Run, Run], bool]] = [
        lambda one, other: one[:2] == other[:2] and one.source == "unmasked" != other.source,
        lambda one, other: one[::2] == other[::2] and one.images == first[one.system] != other.images,
        lambda one, other: (
            (one.system, other.system) == ("model", "twin")
            and one.source == other.source
            and ("none" in (one.images, other.images) or one.images == other.images)
        ),
    ]
    return [(one, other) for kind in kinds for one in runs for other in runs if kind(one, other)]


def _comparisons(resampled: "Mapping[Run, Resampled]", n: int) -> list[dict[str, Any]]:
    """Paired differences, all on the same draws."""
    from ..analysis.significance import compare_draws

    found = []
    for one, other in _pairs(list(resampled)):
        scores = {
            name: compare_draws(score, resampled[other][name])._asdict() for name, score in resampled[one].items()
        }
        found.append({"first": one._asdict(), "second": other._asdict(), "n": n, "scores": scores})
    return found


def _write_translations(
    path: Path, rows: Sequence[int], references: Sequence[str], found: Mapping[Run, Mapping[int, str]]
) -> None:
    table = [["line", "reference", *map(str, found)]]
    table += [[str(row + 1), references[row], *(texts[row] for texts in found.values())] for row in rows]
    lines = ["\t".join(cell.replace("\t", " ") for cell in cells) + "\n" for cells in table]
    path.write_text("".join(lines), encoding="utf-8")


def _table(report: dict[str, Any]) -> list[str]:
    """The report for a reader."""
    from ..analysis.intervals import Interval
    from ..analysis.translation_scores import CONVENTIONS

    hidden = ", ".join(f"{word} {count}" for word, count in report["most_hidden"][:8])
    lines = [
        f"{report['n']} of {report['sentences']} sentences of {report['split']} ({report['target_lang']}); "
        f"{report['without_positions']} have no positions, {report['left_out']} are left out.",
        f"{report['words_hidden']} of {report['words']} words are hidden: {hidden} …",
        "",
    ]
    rows = [["system", "images", "source", *(CONVENTIONS[name].label for name in _SHOWN)]]
    for each in report["runs"]:
        scores = [shown(Interval(**each["scores"][name])) for name in _SHOWN]
        rows.append([each["system"], each["images"], each["source"], *scores])
    lines += [*aligned(rows), "", report["test"], ""]
    rows = [["difference", *(f"{CONVENTIONS[name].label}, p" for name in _SHOWN)]]
    for pair in report["comparisons"]:
        cells = []
        for name in _SHOWN:
            score = pair["scores"][name]
            cells.append(
                f"{shown(Interval(score['delta'], score['low'], score['high']), sign=True)}, {score['p_value']:.4f}"
            )
        rows.append([f"{Run(**pair['first'])} - {Run(**pair['second'])}", *cells])
    return [*lines, *aligned(rows), "", f"intervals: {report['interval']}"]
