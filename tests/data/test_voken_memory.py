"""A checkpoint knows of which images its vokens are the numbers, and what cut their text; others are refused."""

import pytest
from fairseq.tasks.fairseq_task import StatefulContainer
from small_tokenizers import make_cased, make_tokenizer
from small_vokens import write_vokens

from visual_grounding import InputError
from visual_grounding.data.voken_memory import VokenMemory
from visual_grounding.vokenization.vokens import Vokens


@pytest.fixture(scope="module")
def vokens(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Vokens]:
    """Of five candidates, and of six."""
    folder = tmp_path_factory.mktemp("vokens")
    tokenizer = make_tokenizer(folder / "tokenizer", "wordpiece")
    return {size: Vokens(write_vokens(folder / str(size), ["a dog"], tokenizer, size)) for size in (5, 6)}


def memory() -> VokenMemory:
    return VokenMemory(StatefulContainer())


def said(vokens: Vokens, **others: str) -> dict:
    known = {
        "keys_sha256": vokens.keys_sha256,
        "count": vokens.size,
        "tokenizer_sha256": vokens.tokenizer_sha256,
        "made": "vokenize|by:hand",
    }
    return {"vokens": {**known, **others}}


def test_vokens_of_other_images_are_refused(vokens):
    made = memory()
    assert made.known is None
    for _ in range(2):
        made.meet(vokens[5])
    assert made.state_dict == said(vokens[5])
    five, six = (vokens[size].keys_sha256[:8] for size in (5, 6))
    message = (
        rf"vokens in .*/6 should be .* as those of .*/5, but are of 6, keys sha256 {six}…, and those of 5, {five}…"
    )
    with pytest.raises(InputError, match=message):
        made.meet(vokens[6])
    with pytest.raises(
        InputError, match=rf"vokens in .*/5 should be .* those of the checkpoint, but are of 5, .* {six}"
    ):
        made.merge_state_dict(said(vokens[6]))
    made.merge_state_dict(said(vokens[5]))


def test_without_vokens_those_of_the_checkpoint_are_remembered(vokens):
    made = memory()
    made.merge_state_dict(said(vokens[6]))
    assert made.known == said(vokens[6])["vokens"]
    with pytest.raises(
        InputError, match=r"vokens in .*/5 should be numbers of the same images as those of the checkpoi"
    ):
        made.meet(vokens[5])
    made = memory()
    made.merge_state_dict({"vokens": None, "voken_labels": None})
    assert made.known is None


def test_vokens_of_text_that_another_tokenizer_cut_are_refused(vokens, tmp_path):
    own = vokens[5]
    cased = make_cased(tmp_path / "cased", own.folder / "tokenizer")
    other = Vokens(write_vokens(tmp_path / "other", ["a dog"], cased, 5))
    assert other.keys_sha256 == own.keys_sha256 and other.bridge().symbols == own.bridge().symbols
    message = rf"sha256 it is another one, {other.tokenizer_sha256[:8]}… ≠ {own.tokenizer_sha256[:8]}…"
    made = memory()
    made.meet(own)
    with pytest.raises(InputError, match=rf"vokens in .*/other should be .* tokenizer as those of .*/5, .*{message}"):
        made.meet(other)
    made = memory()
    made.merge_state_dict(said(own))
    with pytest.raises(InputError, match=rf"as those of the checkpoint, .*{message}"):
        made.meet(other)


def test_vokens_that_were_chosen_in_another_way_are_warned_of(vokens, caplog):
    made = memory()
    made.meet(vokens[5])
    made.merge_state_dict(said(vokens[5]))
    assert not caplog.records
    made.merge_state_dict(said(vokens[5], made="vokenize|method:random"))
    (record,) = caplog.records
    said_so = record.getMessage()
    assert "those of the checkpoint:\n  vokenize|by:hand\n  vokenize|method:random\n" in said_so
    assert record.levelname == "WARNING"


def test_checkpoints_that_know_of_the_images_alone_are_taken(vokens):
    made = memory()
    made.merge_state_dict({"vokens": {"keys_sha256": vokens[5].keys_sha256, "count": 5}})
    made.meet(vokens[5])
    with pytest.raises(InputError, match="should be numbers of the same images as those of the checkpoint"):
        made.meet(vokens[6])


def test_labels_of_another_kind_than_the_checkpoints_are_warned_of(caplog):
    first, same, other = memory(), memory(), memory()
    first.remember_labels("vokens", "cls")
    same.remember_labels("vokens", "cls")
    other.remember_labels("vokens", "none")
    same.merge_state_dict(first.state_dict)
    memory().merge_state_dict(first.state_dict)  # a task that tells none
    assert not caplog.records
    other.merge_state_dict(first.state_dict)
    (record,) = caplog.records
    assert (
        "trained with --voken-labels vokens --voken-sentence-label cls, and goes on with --voken-labels vokens --vo"
        in (record.getMessage())
    )


DIGEST = "0" * 64
KNOWN = {"keys_sha256": DIGEST, "count": 5}


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize(
    "learned",
    [
        "broken", 3, 0.5, b"x", [1], {}, {"count": 5}, {"keys_sha256": DIGEST}, {**KNOWN, "keys_sha256": 3},
        *({**KNOWN, "keys_sha256": other} for other in (None, b"x", ["x"], {})),
        *({**KNOWN, "count": other} for other in (None, "5", 5.0, True, -1, 10**30, [5])),
        *({**KNOWN, name: other} for name in ("tokenizer_sha256", "made") for other in (None, 3, b"x", ["x"], {})),
    ],
)  # fmt: skip
def test_vokens_of_another_type_than_checkpoints_keep_are_refused(learned, knows):
    made = memory()
    if knows:
        made.merge_state_dict({"vokens": {**KNOWN, "tokenizer_sha256": DIGEST, "made": "vokenize|by:hand"}})
    before = dict(made.state_dict)
    said = r"^the checkpoint should say of which vokens it knows, .* as task_state\['vokens'\], but says "
    with pytest.raises(InputError, match=said):
        made.merge_state_dict({"vokens": learned})
    assert made.state_dict == before


@pytest.mark.parametrize("learned", [3, b"x", ["x"], {}, True])
def test_labels_of_another_type_than_checkpoints_keep_are_refused(learned):
    made = memory()
    made.remember_labels("vokens", "cls")
    with pytest.raises(
        InputError, match=r"checkpoint should say what it told of pieces, in text as task_state\['voken_l"
    ):
        made.merge_state_dict({"voken_labels": learned})
