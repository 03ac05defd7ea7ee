"""Score translations: BLEU in three conventions, chrF, METEOR, COMET; spread over seeds; a test against a twin.

    visual-grounding evaluate --hypothesis seed1.txt seed2.txt --twin text1.txt text2.txt --reference test.de --out DIR

A hypothesis file is what fairseq-generate prints, or plain text, one line a sentence. Several are several seeds of the
same system. The i-th hypothesis is compared with the i-th twin by paired bootstrap: p is the share of resampled test
sets on which the hypothesis doesn't score higher (one-sided, Koehn 2004). Several seeds are compared by one test over
seeds and sentences, two-sided, with the interval of the mean difference. `report runs` puts many such folders into one
table, corrected for their number; docs/evaluation.md says how. `evaluate contrastive` asks instead which of two given
translations a model finds more probable.

The three BLEUs: on tokens, cased (as multi-bleu.perl); on tokens, lower-cased with accents stripped; sacreBLEU on
detokenised text. Tokens or detokenised text that the files don't hold are made by the Moses rules. Everything goes to
DIR/scores.json, too.

METEOR (--meteor-jar) and COMET (--comet, --source) are computed where they are named; else the report says why not.

With --checkpoint and --twin-checkpoint it counts both models' parameters, and warns of a twin that isn't the same model
but for what images need: that twin is trained with --arch text_only_transformer.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, warn
from .scoring import add_resampling, check_resampling, meta_of

if TYPE_CHECKING:
    import numpy as np

    from ..analysis.intervals import ResampledScore
    from ..analysis.translation_scores import TextForms

FORMS = ("tokenised", "raw")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The files to compare, what they hold, and what to say about them."""
    parser.add_argument("--hypothesis", nargs="+", required=True, metavar="FILE", help="translations, one file a seed")
    parser.add_argument(
        "--reference", required=True, metavar="FILE", help="reference translations, one line a sentence"
    )
    parser.add_argument(
        "--twin", nargs="+", default=[], metavar="FILE", help="the system to compare with, as many files"
    )
    parser.add_argument("--hypothesis-is", choices=FORMS, default="tokenised", help="text of --hypothesis and --twin")
    parser.add_argument("--reference-is", choices=FORMS, default="tokenised", help="text of --reference")
    parser.add_argument("--target-lang", default="de", metavar="LANG", help="their language (default: de)")
    parser.add_argument(
        "--checkpoint", metavar="CKPT", help="count this model's parameters, and those of them for images"
    )
    parser.add_argument(
        "--twin-checkpoint", metavar="CKPT", help="the same for the twin; a warning where it differs by more than those"
    )
    parser.add_argument("--meteor-jar", metavar="FILE", help="meteor-1.5.jar; needs Java")
    parser.add_argument(
        "--comet", metavar="FOLDER", help="a COMET model; needs --source, and pip install unbabel-comet"
    )
    parser.add_argument(
        "--source", metavar="FILE", help="source sentences for --comet, one a line, written as those of --reference"
    )
    parser.add_argument("--source-lang", default="en", metavar="LANG", help="their language (default: en)")
    add_resampling(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for scores.json")


def run(args: argparse.Namespace) -> None:
    """Read everything, score it, print a table, write the same as JSON.

    Raises:
        InputError: texts that don't belong together, or an output that can't be written.
    """
    from ..analysis.hypotheses import read_references
    from ..analysis.score_files import write_score_files
    from ..analysis.systems import arrays_of_draws
    from ..analysis.translation_scores import CONVENTIONS, signatures, spread, text_forms
    from ..storage.artefact import sha256_of_file
    from .evaluation_table import table_of

    _check(args)
    references = read_references(args.reference)
    _warn_about_form(args.reference, references, args.reference_is, "--reference-is")
    reference_forms = text_forms(references, form=args.reference_is, language=args.target_lang)
    comet = _comet(args, references)
    forms: dict[str, list[TextForms]] = {}
    of_sentences: dict[str, list[np.ndarray]] = {}
    systems: dict[str, dict[str, Any] | None] = {"hypothesis": None, "twin": None}
    for system, paths, checkpoint in (
        ("hypothesis", args.hypothesis, args.checkpoint),
        ("twin", args.twin, args.twin_checkpoint),
    ):
        forms[system] = [_read_forms(path, args, references) for path in paths]
        of_sentences[system] = [comet(text, reference_forms) for text in forms[system]] if comet else []
        if paths:
            means = [float(scores.mean()) for scores in of_sentences[system]]
            systems[system] = {
                **_score_system(paths, forms[system], reference_forms, checkpoint, args),
                "comet": spread(means)._asdict() if means else None,
            }
    if args.checkpoint and args.twin_checkpoint:
        _warn_about_sizes(args, systems)
    _check_seeds(args, forms)
    comparison, resampled = None, {}
    if args.twin:
        drawn = {name: _resample(texts, of_sentences[name], reference_forms, args) for name, texts in forms.items()}
        comparison, resampled = _compare(drawn, len(references), args), arrays_of_draws(drawn)
    signed = signatures(args.target_lang)
    files = [*args.hypothesis, *args.twin, args.reference, args.checkpoint, args.twin_checkpoint, args.meteor_jar]
    files.append(args.source)
    report = {
        "sentences": len(references),
        "test_set": {"file": args.reference, "sha256": sha256_of_file(args.reference)},
        "metrics": _metrics(args),
        "not_computed": _not_computed(args),
        "resampling": {"samples": args.bootstrap_samples, "seed": args.seed} if args.twin else None,
        "target_lang": args.target_lang,
        "systems": systems,
        "signature": signed["sacrebleu"],
        "conventions": {
            name: {"label": convention.label, "signature": signed[name], "text": _origin(convention.form, args)}
            for name, convention in CONVENTIONS.items()
        },
        "comparison": comparison,
        "meta": meta_of(args, files, ("sacrebleu", "sacremoses", "scipy", "numpy")),
    }
    write_score_files(Path(args.out), report, resampled)
    print("\n".join(table_of(report, _labels(args.comet))))


def _check(args: argparse.Namespace) -> None:
    """What can be refused before anything is read."""
    if args.twin and len(args.twin) != len(args.hypothesis):
        raise InputError(
            f"--twin should name as many files as --hypothesis, as they are compared in pairs, but --hypothesis has "
            f"{len(args.hypothesis)} and --twin has {len(args.twin)}."
        )
    if args.twin_checkpoint and not args.twin:
        raise InputError("--twin-checkpoint needs the twin's translations: give them with --twin FILE …")
    if bool(args.comet) != bool(args.source):
        raise InputError(
            "--comet and --source should be given together, as COMET reads the source sentences, but "
            f"{'--source' if args.comet else '--comet'} is missing."
        )
    check_resampling(args)
    from ..analysis.translation_scores import check_language
    from ..storage.lines import check_read_again

    check_read_again(*args.hypothesis, *args.twin, args.reference, args.source)

    for choice in ("target_lang", "source_lang") if args.comet else ("target_lang",):
        warning = check_language(getattr(args, choice), choice)
        if warning:
            warn(warning)


def _check_seeds(args: argparse.Namespace, forms: dict[str, list["TextForms"]]) -> None:
    """Seeds should be several: the same translations twice would make a system look steadier than it is."""
    for name, paths in (("hypothesis", args.hypothesis), ("twin", args.twin)):
        texts = [tuple(text.tokens) for text in forms[name]]
        for place, text in enumerate(texts):
            first = texts.index(text)
            if first != place:
                warn(
                    f"--{name} has the same translations in {paths[first]} and {paths[place]}, which are "
                    "taken as two seeds. If they are one run, its own spread isn't in the test over seeds."
                )
                break


def _resample(
    texts: Sequence["TextForms"],
    comet: Sequence["np.ndarray"],
    references: "TextForms",
    args: argparse.Namespace,
) -> list[dict[str, "ResampledScore"]]:
    """Every score of each seed of a system, on the draws that all seeds and both systems share.

    Shapes:
        comet: (S,) of each seed; none where COMET isn't computed
    """
    from ..analysis.significance import resample_mean, resample_scores

    draws = {"samples": args.bootstrap_samples, "seed": args.seed}
    seeds = [resample_scores(text, references, language=args.target_lang, **draws) for text in texts]
    for seed, scores in zip(seeds, comet):
        seed["comet"] = resample_mean(scores, **draws)
    return seeds


def _compare(
    drawn: dict[str, list[dict[str, "ResampledScore"]]], sentences: int, args: argparse.Namespace
) -> dict[str, Any]:
    """The tests, and which files each is of."""
    from ..analysis.systems import compare_systems

    comparison = compare_systems(drawn["hypothesis"], drawn["twin"], sentences)
    for pair, path, twin_path in zip(comparison["pairs"], args.hypothesis, args.twin):
        pair |= {"hypothesis": path, "twin": twin_path}
    return comparison | {"samples": args.bootstrap_samples, "seed": args.seed}


def _comet(
    args: argparse.Namespace, references: Sequence[str]
) -> "Callable[[TextForms, TextForms], np.ndarray] | None":
    """What scores the sentences of a system with COMET, times 100 as all scores here are; None where it can't be."""
    from ..analysis.comet import Comet, why_not
    from ..analysis.hypotheses import check_sources, read_references
    from ..analysis.translation_scores import check_same_length, text_forms

    if why_not(args.comet):
        return None
    model = Comet(args.comet)
    sources = read_references(args.source)
    check_same_length(args.source, len(sources), args.reference, len(references))
    _warn_about_form(args.source, sources, args.reference_is, "--reference-is")
    for path in [*args.hypothesis, *args.twin]:
        for warning in check_sources(path, args.source, sources):
            warn(warning)
    written = text_forms(sources, form=args.reference_is, language=args.source_lang).detokenised
    return lambda text, truth: 100 * model.score(written, text.detokenised, truth.detokenised)


def _not_computed(args: argparse.Namespace) -> dict[str, str]:
    """Scores that are left out, and why."""
    from ..analysis.comet import why_not

    missing = {}
    if args.meteor_jar is None:
        missing["METEOR"] = "give --meteor-jar FILE"
    if reason := why_not(args.comet):
        missing["COMET"] = reason if args.comet else "give --comet FOLDER and --source FILE"
    return missing


def _labels(comet: str | None) -> dict[str, str]:
    """Score -> its name for readers, in the order of the table; COMET's has the name of its model."""
    from ..analysis.translation_scores import CONVENTIONS

    labels = {name: convention.label for name, convention in CONVENTIONS.items()}
    return {**labels, "meteor": "METEOR 1.5", "comet": "COMET × 100" + (f", {Path(comet).name}" if comet else "")}


def _metrics(args: argparse.Namespace) -> dict[str, Any]:
    """What the scores are, for whoever puts several evaluations together; another model is another COMET."""
    from ..analysis.comet import checkpoint_of, why_not
    from ..analysis.score_files import described_metric
    from ..storage.artefact import sha256_of_file

    metrics = {name: described_metric(label) for name, label in _labels(args.comet).items()}
    if not why_not(args.comet):
        metrics["comet"]["model_sha256"] = sha256_of_file(checkpoint_of(args.comet))
    return metrics


def _read_forms(path: str, args: argparse.Namespace, references: Sequence[str]) -> "TextForms":
    from ..analysis.hypotheses import check_targets, read_translations, refuse_endless
    from ..analysis.translation_scores import check_same_length, text_forms

    hypotheses, targets = read_translations(path)
    refuse_endless(path, hypotheses)
    check_same_length(path, len(hypotheses), args.reference, len(references))
    for warning in check_targets(path, targets, args.reference, references):
        warn(warning)
    _warn_about_form(path, hypotheses, args.hypothesis_is, "--hypothesis-is")
    return text_forms(hypotheses, form=args.hypothesis_is, language=args.target_lang)


def _warn_about_form(path: str, sentences: Sequence[str], form: str, flag: str) -> None:
    from ..analysis.translation_scores import guess_form

    guess = guess_form(sentences)
    if guess not in (None, form):
        warn(f"{path} is taken as {form} text, but most of its full stops look {guess}. If so: {flag} {guess}")


def _score_system(
    paths: Sequence[str],
    texts: Sequence["TextForms"],
    references: "TextForms",
    checkpoint: str | None,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Scores of one system over its seeds, how many translations are empty, and the size of its model."""
    from ..analysis.translation_scores import score_forms, spread
    from ..shares import warn_of

    runs = [
        score_forms(text, references, language=args.target_lang, meteor_jar=args.meteor_jar)._asdict() for text in texts
    ]
    empty = [sum(not sentence for sentence in text.tokens) for text in texts]
    for path, number, text in zip(paths, empty, texts):
        for warning in warn_of(number, len(text.tokens), "are empty; they count.", f"translations in {path}"):
            warn(warning)
    scores = {
        name: None if runs[0][name] is None else spread([run[name] for run in runs])._asdict() for name in runs[0]
    }
    return {"files": list(paths), "empty": empty, **_sizes(checkpoint), **scores}


def _sizes(checkpoint: str | None) -> dict[str, Any]:
    """How many parameters a model has, and how many of them for its images alone."""
    from ..storage.checkpoints import architecture, count_parameters, load_checkpoint, weights_for_images

    if not checkpoint:
        return {"parameters": None, "parameters_for_images": None, "architecture": None}
    state = load_checkpoint(checkpoint)
    weights = state["model"]
    return {
        "parameters": count_parameters(weights),
        "parameters_for_images": count_parameters(weights_for_images(weights)),
        "architecture": architecture(state),
    }


def _warn_about_sizes(args: argparse.Namespace, systems: dict[str, Any]) -> None:
    """A twin should differ by what images need, and by nothing else."""
    ours, theirs = systems["hypothesis"], systems["twin"]
    text, twin_text = (system["parameters"] - system["parameters_for_images"] for system in (ours, theirs))
    if text == twin_text:
        return
    seeing = (ours if ours["parameters_for_images"] else theirs)["architecture"] or ""
    family, found, preset = seeing.partition("_transformer")
    way = "Train both with the same sizes"
    if found and family != "text_only":
        way = f"The twin of {seeing} is --arch text_only_transformer{preset}, trained with otherwise the same flags"
    warn(
        f"without what images need, {args.checkpoint} has {text:,} parameters "
        f"({ours['parameters']:,} - {ours['parameters_for_images']:,}), but {args.twin_checkpoint} has {twin_text:,}, "
        f"so scores may differ because of the sizes. {way} on the same data."
    )


def _origin(form: str, args: argparse.Namespace) -> str:
    """How the text of one score was obtained on each side."""
    given = "raw" if form == "detokenised" else "tokenised"
    verb = "detokenised" if form == "detokenised" else "tokenised"
    sides = {"hypotheses": args.hypothesis_is, "references": args.reference_is}
    how = [f"{side} {'as given' if is_ == given else f'{verb} by sacremoses'}" for side, is_ in sides.items()]
    return ", ".join(how) + (", then lower-cased and accent-stripped" if form == "normalised" else "")
