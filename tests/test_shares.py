"""How many of how many: one way to say it."""

from visual_grounding.shares import percent, share, warn_of


def test_share_names_both_counts_and_the_share() -> None:
    assert share(1, 3, "sentences of train") == "1 of 3 sentences of train (33.3 %)"
    assert percent(1) == "100.0 %" and percent(0.0004) == "0.0 %"


def test_warning_comes_only_where_there_is_something_to_count() -> None:
    assert list(warn_of(2, 8, "are long.", "lines")) == ["2 of 8 lines (25.0 %) are long."]
    assert list(warn_of(0, 0, "are long.")) == []
