"""The parser of every command line of this package: whole names only."""

import pytest

from visual_grounding.cli.main import VERBS, main, parser_of
from visual_grounding.flags import FlagParser, close_flags
from visual_grounding.retrieval.finder import METHODS


def parser() -> FlagParser:
    made = FlagParser(prog="made")
    made.add_argument("-n", "--images-per-sentence", type=int, default=8)
    made.add_argument("--nprobe", "--probes", type=int)
    made.add_argument("--exclude-paired")
    return made


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n", "3"], "made: error: unrecognized arguments: --n 3; close to that: --nprobe, -n\n"),
        (["--exclude", "F"], "unrecognized arguments: --exclude F; close to that: --exclude-paired\n"),
        (["--exclude=F", "--prob", "2"], "--exclude=F --prob 2; close to that: --exclude-paired, --probes, --nprobe\n"),
        (["--colour", "red"], "unrecognized arguments: --colour red\n"),
    ],
)
def test_an_abbreviation_is_refused_with_what_it_may_mean(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith(message)


def test_whole_names_and_aliases_are_read() -> None:
    assert vars(parser().parse_args(["-n3", "--probes", "2", "--exclude-paired=F"])) == {
        "images_per_sentence": 3,
        "nprobe": 2,
        "exclude_paired": "F",
    }


def test_a_hidden_flag_is_read_but_not_named() -> None:
    made = FlagParser()
    made.add_argument("--hidden", help="==SUPPRESS==")
    assert "--hidden" not in made.shown_flags()
    assert made.parse_args(["--hidden", "x"]).hidden == "x"


def test_close_flags_are_found_for_typing_errors() -> None:
    assert close_flags("--image-featurs", ["--image-features", "--image-ids"]) == ["--image-features"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_reads_whole_names_alone(verb: str) -> None:
    for words in METHODS if verb == "retrieve" else []:
        assert not parser_of(verb, ["--method", words]).allow_abbrev
    assert not parser_of(verb, []).allow_abbrev


def test_retrieve_takes_no_abbreviation_of_another_flag(capsys: pytest.CaptureFixture[str]) -> None:
    sound = ["retrieve", "--method", "dense", "--retriever", "r", "--index", "i", "--text", "t", "--out", "o"]
    for words, close in ((["--n", "3"], "--nprobe, -n"), (["--exclude", "F"], "--exclude-paired")):
        with pytest.raises(SystemExit) as end:
            main([*sound, *words])
        assert end.value.code == 2
        assert f"unrecognized arguments: {' '.join(words)}; close to that: {close}\n" in capsys.readouterr().err
