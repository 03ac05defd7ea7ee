"""Scores of a set of translations: BLEU in the three conventions that Multi30k papers use, chrF and METEOR.

| score | words | as in |
| --- | --- | --- |
| `tokenised_bleu` | tokens, cased | multi-bleu.perl and the scores of fairseq-generate |
| `normalised_bleu` | tokens, lower-cased, accents stripped | VTLM |
| `sacrebleu` | sacreBLEU's own, from detokenised text | WMT |

They differ by several points on the same translations, so a number means nothing without its convention.
"""

import re
import statistics
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import InputError
from .meteor import meteor

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

TextForm = Literal["tokenised", "raw"]


class Convention(NamedTuple):
    """How one score is computed: its name for readers, and the field of `TextForms` that it compares."""

    label: str
    form: str


CONVENTIONS = {
    "tokenised_bleu": Convention("BLEU, tokens, cased", "tokens"),
    "normalised_bleu": Convention("BLEU, tokens, lower-cased, accents stripped", "normalised"),
    "sacrebleu": Convention("sacreBLEU, detokenised", "detokenised"),
    "chrf": Convention("chrF2, detokenised", "detokenised"),
}


class TextForms(NamedTuple):
    """The same S sentences as tokens joined by spaces, as normalised tokens, and as people write them."""

    tokens: list[str]
    normalised: list[str]
    detokenised: list[str]


class TranslationScores(NamedTuple):
    """Scores 0..100; `meteor` is None where it wasn't computed."""

    tokenised_bleu: float
    normalised_bleu: float
    sacrebleu: float
    chrf: float
    meteor: float | None


class Spread(NamedTuple):
    """Mean and sample standard deviation (n - 1) of one score over runs; no deviation for a single run."""

    mean: float
    std: float | None
    values: list[float]


def strip_case_and_accents(sentence: str) -> str:
    """Lower-case and drop combining marks, token for token.

    >>> strip_case_and_accents("Ein Mädchen isst Crème brûlée .")
    'ein madchen isst creme brulee .'
    """
    decomposed = unicodedata.normalize("NFD", sentence.lower())
    return "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn")


def text_forms(sentences: Sequence[str], *, form: TextForm = "tokenised", language: str = "de") -> TextForms:
    """Every form of the sentences that a score needs.

    Tokens given are kept, but XML escapes of the Moses tokenizer (`&apos;`) are undone: token for token, so a score
    changes only where one side alone was escaped. What isn't given is made by the Moses rules (sacremoses).

    Args:
        sentences: S sentences.
        form: what they are: "tokenised" (tokens joined by spaces) or "raw" (as people write).
        language: code of their language, for the Moses rules.

    >>> text_forms(["Das ist Annas &quot; Hund &quot; ."]).detokenised
    ['Das ist Annas "Hund".']
    >>> text_forms(['Das ist "Annas" Hund.'], form="raw").tokens
    ['Das ist " Annas " Hund .']
    """
    from sacremoses import MosesDetokenizer, MosesTokenizer

    if form == "tokenised":
        detokenizer = MosesDetokenizer(lang=language)
        tokens = [" ".join(detokenizer.unescape_xml(sentence).split()) for sentence in sentences]
        detokenised = [detokenizer.detokenize(sentence.split()) for sentence in sentences]
    else:
        tokenizer = MosesTokenizer(lang=language)
        tokens = [tokenizer.tokenize(sentence, return_str=True, escape=False) for sentence in sentences]
        detokenised = [sentence.strip() for sentence in sentences]
    return TextForms(tokens, [strip_case_and_accents(sentence) for sentence in tokens], detokenised)


def check_language(language: str, choice: str) -> str | None:
    """Refuse what is no code of a language; what to say where the Moses rules don't know it, else None.

    Args:
        choice: the argument that names it.

    Raises:
        InputError: it isn't two or three small letters.
    """
    from sacremoses.corpus import NonbreakingPrefixes

    known = NonbreakingPrefixes().available_langs  # codes, and names of their languages
    if not re.fullmatch("[a-z]{2,3}", language):
        meant = known.get(language.lower()) or known.get(re.split("[-_]", language.lower())[0])
        code = f", here {meant}" if meant else ", such as de"
        said = f"the language should be a code of two or three small letters{code}, but is {language!r}."
        raise InputError(said, choice)
    if language in known.values():
        return None
    meant = next((code for name, code in known.items() if len(language) > 2 and name.startswith(language)), None)
    also = f", but for {meant!r}" if meant else ""
    return f"the Moses rules have none for {language!r}{also}: where they are applied, those of English are taken."


def guess_form(sentences: Sequence[str]) -> TextForm | None:
    """What the full stops at the sentences' ends say: apart from the last word or not; None without full stops.

    >>> guess_form(["Ein Hund .", "Zwei Hunde ."]), guess_form(["Ein Hund."]), guess_form(["Ein Hund"])
    ('tokenised', 'raw', None)
    """
    ends = [sentence.rstrip() for sentence in sentences if sentence.rstrip().endswith(".")]
    if not ends:
        return None
    return "tokenised" if 2 * sum(end == "." or end.endswith(" .") for end in ends) >= len(ends) else "raw"


@cache
def sacrebleu_metric(name: str, language: str) -> "Metric":
    """The sacreBLEU object behind a score. On tokens it doesn't smooth, as multi-bleu.perl doesn't.

    Raises:
        InputError: sacreBLEU has a tokenizer for this language, but a package that it needs isn't installed.
    """
    from sacrebleu.metrics import BLEU, CHRF

    if name == "chrf":
        return CHRF()
    if name == "sacrebleu":
        try:
            return BLEU(trg_lang=language)
        except (ImportError, RuntimeError) as error:
            raise InputError(
                f"sacreBLEU can't tokenise {language}: {error} Install what it names, e.g. pip install "
                f"'sacrebleu[{language}]'."
            ) from error
    return BLEU(tokenize="none", smooth_method="none", lowercase=False, force=True)


def signatures(language: str) -> dict[str, str]:
    """sacreBLEU's signature of every score: what to print beside the number."""
    result = {}
    for name, convention in CONVENTIONS.items():
        metric = sacrebleu_metric(name, language)
        sentence: Any = ["a"]
        metric.corpus_score(sentence, [sentence])  # sacreBLEU knows the number of references only after scoring
        result[name] = f"{metric.get_signature()}|text:{convention.form}"
    result["sacrebleu"] = result["sacrebleu"].removesuffix("|text:detokenised")
    return result


def score_forms(
    hypotheses: TextForms, references: TextForms, *, language: str = "de", meteor_jar: str | Path | None = None
) -> TranslationScores:
    """`score_translations` for texts whose forms are known."""
    scores = {
        name: float(
            sacrebleu_metric(name, language)
            .corpus_score(getattr(hypotheses, convention.form), [getattr(references, convention.form)])
            .score
        )
        for name, convention in CONVENTIONS.items()
    }
    jar_score = None
    if meteor_jar is not None:
        jar_score = meteor(hypotheses.detokenised, references.detokenised, meteor_jar, language)
    return TranslationScores(**scores, meteor=jar_score)


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    hypotheses_are: TextForm = "tokenised",
    references_are: TextForm = "tokenised",
    language: str = "de",
    meteor_jar: str | Path | None = None,
) -> TranslationScores:
    """All scores of S translations against S references; an empty translation is legal and counts.

    Raises:
        InputError: the numbers of sentences differ, there are none, or METEOR can't run.

    >>> scores = score_translations(["ein Hund läuft im Park ."], ["Ein Hund läuft im Park ."])
    >>> round(scores.tokenised_bleu, 2), round(scores.normalised_bleu, 2)  # (5/6 · 4/5 · 3/4 · 2/3) ^ 1/4
    (75.98, 100.0)
    """
    check_same_length("hypotheses", len(hypotheses), "references", len(references))
    return score_forms(
        text_forms(hypotheses, form=hypotheses_are, language=language),
        text_forms(references, form=references_are, language=language),
        language=language,
        meteor_jar=meteor_jar,
    )


def check_same_length(hypotheses_name: str, hypotheses: int, references_name: str, references: int) -> None:
    """Insist that two texts, called by these names in the message, have the same number of sentences, at least one.

    Raises:
        InputError: they don't.
    """
    if not references:
        raise InputError(f"{references_name} should hold at least one sentence, but has none: nothing to compare with.")
    if hypotheses != references:
        raise InputError(
            f"{references_name} has {references} sentences, but {hypotheses_name} has {hypotheses}. "
            "Translate the whole set that the references belong to. (fairseq's own translation task drops a last batch "
            "that isn't a multiple of 8; --task grounded_translation doesn't, nor for a text-only twin.)"
        )


def spread(values: Sequence[float]) -> Spread:
    """Summarise one score over several runs.

    >>> spread([40.0, 41.0, 42.0])
    Spread(mean=41.0, std=1.0, values=[40.0, 41.0, 42.0])
    """
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, list(values))
