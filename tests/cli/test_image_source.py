"""Pages that nobody would read are refused by every verb that makes some."""

from pathlib import Path

import pytest
from cli.test_absurd_numbers import commands, run, world  # noqa: F401 - a fixture

from visual_grounding.cli import image_source

SHOWN = {
    "report": (["--sample", 2], "2 sentences", "--sample"),
    "report regions": (["--first", 2], "2 images", "--first"),
    "report vokens": (["--lines", 0, 1], "2 lines", "--lines"),
    "report heatmap": (["--sample", 2], "2 texts", "--sample"),
}


@pytest.mark.parametrize("verb", SHOWN)
def test_a_page_shows_so_many_at_most(
    world: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    flags, told, flag = SHOWN[verb]
    words = [*commands(world)[verb], *flags, "--out", tmp_path / "out"]
    monkeypatch.setattr(image_source, "MOST_SHOWN", 1)
    status, said = run(verb, words)
    assert status == 2 and not (tmp_path / "out").exists()
    assert f"a page shows at most 1 {told.split()[1]}, but {told.split()[0]} were asked for" in said and flag in said
    monkeypatch.setattr(image_source, "MOST_SHOWN", 2)
    assert run(verb, words)[0] == 0


def test_a_page_shows_so_many_images_at_most_in_few_rows(
    world: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [*commands(world)["report"], "--sample", 2, "--out", tmp_path / "out"]
    monkeypatch.setattr(image_source, "MOST_IMAGES", 3)
    status, said = run("report", [*words, "--images-per-sentence", 10**6])
    assert status == 2 and "a page shows at most 3 images, but 4 were asked for. See --images-per-sentence" in said
    assert run("report", [*words, "--images-per-sentence", 1])[0] == 0


@pytest.mark.parametrize(
    ("verb", "named", "drawn"),
    [
        ("report", ["--rows", 0], ["--sample", 2]),
        ("report regions", ["--key", "a.png"], ["--first", 2]),
        ("report vokens", ["--lines", 0], ["--first", 2]),
    ],
)
def test_what_is_shown_is_named_or_counted_but_not_both(
    world: Path,  # noqa: F811
    tmp_path: Path,
    verb: str,
    named: list[object],
    drawn: list[object],
) -> None:
    status, said = run(verb, [*commands(world)[verb], *named, *drawn, "--out", tmp_path / "out"])
    assert status == 2 and f"argument {drawn[0]}: not allowed with argument {named[0]}" in said, said
