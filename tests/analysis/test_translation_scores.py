"""The three BLEU conventions by hand, and what tells them apart."""

import math

import pytest
import sacrebleu

from visual_grounding.analysis.translation_scores import (
    CONVENTIONS,
    check_language,
    guess_form,
    score_translations,
    signatures,
    spread,
    strip_case_and_accents,
    text_forms,
)
from visual_grounding.errors import InputError

REFERENCES = ["Ein Mädchen sitzt im Park .", "Zwei Hunde laufen ."]
HYPOTHESES = ["Ein mädchen sitzt im Park .", "Zwei Hunde ."]


def test_tokenised_bleu_by_hand() -> None:
    # 9 tokens against 10. Matches of 1-grams: all but "mädchen": 8 of 9. 2-grams: 5 + 2: "sitzt im", "im Park",
    # "Park .", "Zwei Hunde" = 4 of 7. 3-grams: 4 + 1: "sitzt im Park", "im Park ." = 2 of 5. 4-grams: 3 + 0:
    # "sitzt im Park ." = 1 of 3. Brevity penalty exp(1 - 10 / 9).
    expected = 100 * math.exp(1 - 10 / 9) * (8 / 9 * 4 / 7 * 2 / 5 * 1 / 3) ** 0.25
    assert score_translations(HYPOTHESES, REFERENCES).tokenised_bleu == pytest.approx(expected, abs=1e-9)


def test_normalised_bleu_by_hand() -> None:
    # As above, but "mädchen" matches as "madchen": 1-grams 9 of 9, 2-grams 6 of 7, 3-grams 4 of 5, 4-grams 3 of 3.
    expected = 100 * math.exp(1 - 10 / 9) * (9 / 9 * 6 / 7 * 4 / 5 * 3 / 3) ** 0.25
    assert score_translations(HYPOTHESES, REFERENCES).normalised_bleu == pytest.approx(expected, abs=1e-9)


def test_sacrebleu_and_chrf_are_those_of_its_own_functions_on_detokenised_text() -> None:
    scores = score_translations(HYPOTHESES, REFERENCES)
    ours, theirs = ["Ein mädchen sitzt im Park.", "Zwei Hunde."], ["Ein Mädchen sitzt im Park.", "Zwei Hunde laufen."]
    assert scores.sacrebleu == pytest.approx(sacrebleu.corpus_bleu(ours, [theirs]).score, abs=1e-9)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(ours, [theirs]).score, abs=1e-9)
    assert scores.meteor is None


def test_tokenised_bleu_is_zero_as_multi_bleus_when_no_4_gram_matches() -> None:
    scores = score_translations(["a b c x"], ["a b c d"])
    assert scores.tokenised_bleu == 0
    assert scores.sacrebleu > 0  # sacreBLEU smooths


def test_scores_are_perfect_and_zero_at_the_ends() -> None:
    assert score_translations(REFERENCES, REFERENCES)[:4] == pytest.approx((100, 100, 100, 100))
    assert score_translations(["", ""], REFERENCES)[:4] == (0, 0, 0, 0)


def test_scores_are_the_same_when_references_come_raw() -> None:
    raw = ["Ein Mädchen sitzt im Park.", "Zwei Hunde laufen."]
    assert score_translations(HYPOTHESES, raw, references_are="raw") == score_translations(HYPOTHESES, REFERENCES)


def test_scores_do_not_depend_on_who_escaped() -> None:
    escaped, plain = ["Das ist &quot; gut &quot; &amp; Annas &apos;s Hund ."], ['Das ist " gut " & Annas \'s Hund .']
    assert score_translations(escaped, plain)[:4] == pytest.approx((100, 100, 100, 100))


def test_text_forms_of_raw_text_are_moses_tokens() -> None:
    forms = text_forms(["»Läuft« er, z.B. heute?"], form="raw")
    assert forms.tokens == ["» Läuft « er , z.B. heute ?"]
    assert forms.normalised == ["» lauft « er , z.b. heute ?"]
    assert forms.detokenised == ["»Läuft« er, z.B. heute?"]


def test_stripping_keeps_tokens_apart_and_letters_that_are_no_accents() -> None:
    assert strip_case_and_accents("Ça Straße Øl İ Ångström") == "ca straße øl i angstrom"


def test_form_is_guessed_from_most_full_stops() -> None:
    assert guess_form(["a .", "b .", "c."]) == "tokenised"
    assert guess_form(["a .", "b.", "c."]) == "raw"
    assert guess_form(["a .", "b."]) == "tokenised"
    assert guess_form(["", "a"]) is None


def test_signatures_name_every_convention() -> None:
    signed = signatures("de")
    assert list(signed) == list(CONVENTIONS)
    assert signed["sacrebleu"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert "tok:none|smooth:none" in signed["tokenised_bleu"]


def test_scores_are_refused_when_lengths_differ() -> None:
    with pytest.raises(InputError, match=r"references has 2 sentences, but hypotheses has 1"):
        score_translations(["a"], ["a", "b"])


def test_scores_are_refused_when_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match=r"references should hold at least one sentence, but has none"):
        score_translations([], [])


def test_spread_is_the_sample_deviation_and_unknown_for_one_run() -> None:
    # deviations -3, -1, 1, 3: (9 + 1 + 1 + 9) / 3
    assert spread([1.0, 3.0, 5.0, 7.0]).std == pytest.approx(math.sqrt(20 / 3))
    assert spread([1.0, 3.0]).std == pytest.approx(math.sqrt(2))
    assert spread([4.0]) == (4.0, None, [4.0])


@pytest.mark.parametrize(("language", "meant"), [("ger", ", but for 'de'"), ("ge", ""), ("xyz", "")])
def test_a_language_without_rules_may_be_meant_by_its_first_three_letters(language: str, meant: str) -> None:
    said = check_language(language, "target_lang")
    assert said is not None and said.startswith(f"the Moses rules have none for {language!r}{meant}: where")
    assert check_language("de", "target_lang") is None
