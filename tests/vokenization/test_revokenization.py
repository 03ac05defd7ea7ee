"""Vokens carried from one tokenizer to another: by hand, against all pairs of pieces, killed, and refused."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from faults.steps import killed_at_each_step
from hypothesis import example, given, settings
from hypothesis import strategies as st
from small_tokenizers import AWKWARD, FAMILIES, SENTENCES, make_tokenizer
from small_vokens import write_vokens

from visual_grounding.errors import InputError
from visual_grounding.storage import growing, shards
from visual_grounding.storage.growing import GrowingArtefact
from visual_grounding.storage.lines import sha256_of_lines
from visual_grounding.storage.ranks import Rank
from visual_grounding.text.pretrained_tokenizer import composed
from visual_grounding.text.tokenizer_bridge import TokenizerBridge
from visual_grounding.vokenization import revokenization
from visual_grounding.vokenization.revokenization import Revokenizer, revokenize
from visual_grounding.vokenization.vokens import Vokens

LETTERS = "aAdoguns.,' \t\u00a0\u2003\u3000\x85\u200b\ufeff\u0308\u0301üßéﬁ½ﷺ①狗が\u3099🐕👩\u200d👩ᄀ가İſΣ▁Ġ#<>[]\x00"
TEXTS = st.lists(st.text(st.sampled_from(LETTERS) | st.characters(exclude_categories=["Cs"]), max_size=10), max_size=3)
LINES = ["A dog runs.", "", "Two birds  sit", "  ", "über die Straße", "a 🐕"]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each family."""
    folder = tmp_path_factory.mktemp("tokenizers")
    return {family: make_tokenizer(folder / family, family) for family in FAMILIES}


@pytest.fixture(scope="module")
def bridges(tokenizers: dict[str, Path]) -> dict[str, TokenizerBridge]:
    return {family: TokenizerBridge(str(folder)) for family, folder in tokenizers.items()}


def naive(own: TokenizerBridge, other: TokenizerBridge, texts: list[str], vokens: list[int]) -> list[int]:
    """Piece by piece and pair by pair, from the offsets that transformers gives."""
    found, first = [], 0
    for text in map(composed, texts):
        ours, theirs = (
            [set(range(*span)) - {place for place, letter in enumerate(text) if letter.isspace()} for span in each]
            for each in (
                bridge.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
                for bridge in (own, other)
            )
        )
        # White space at the ends is no part of a piece; what stands between letters is.
        ours, theirs = ([set(range(min(s), max(s) + 1)) if s else s for s in each] for each in (ours, theirs))
        for u in theirs:
            shares = [len(w & u) / len(w | u) if w & u else 0 for w in ours]
            best = max(shares, default=0)
            found.append(vokens[first + shares.index(best)] if best else -1)
        first += len(ours)
    return found


@pytest.mark.parametrize("family", FAMILIES)
@given(TEXTS)
@example([*SENTENCES, *AWKWARD])
@settings(max_examples=12, deadline=None)
def test_vokens_are_those_of_all_pairs_of_pieces_in_any_text(bridges, tokenizers, family, texts):
    own = bridges[family]
    lengths = [len(numbers) for numbers in own.numbers_of(texts)]
    vokens = np.arange(sum(lengths), dtype=np.int32)
    vokens[1::7] = -1
    offsets = np.cumsum([0, *lengths])
    source = SimpleNamespace(bridge=lambda: own, vokens=vokens, offsets=offsets, scores=None, folder=Path("v"))
    kept = [own.line_of(numbers) for numbers in own.numbers_of(texts)]
    for other in bridges.values():
        revokenizer = object.__new__(Revokenizer)  # so that no tokenizer is loaded for every example
        revokenizer.source, revokenizer.own, revokenizer.other = source, own, other
        made = revokenizer.label(0, kept, revokenizer.cut(texts))
        expected = naive(own, other, texts, vokens.tolist())
        assert made.vokens.tolist() == expected, other.name
        numbers = other.numbers_of(texts)
        assert made.tokens == [other.line_of(each) for each in numbers]
        assert made.lengths.tolist() == [len(each) for each in numbers]
        assert made.counts["unmatched"] + made.counts["ignored"] == expected.count(-1)
        assert made.counts["empty"] == made.lengths.tolist().count(0)


def source_of(folder: Path, tokenizer: Path, lines: list[str] = LINES, **options: object) -> tuple[Vokens, Path]:
    """Vokens of some lines, and the file of the text."""
    (folder / "text").write_bytes("".join(f"{line}\n" for line in lines).encode())
    return Vokens(write_vokens(folder / "source", lines, tokenizer, **options)), folder / "text"


def made_of(source: Vokens, text: Path, tokenizer: Path, out: Path) -> Vokens:
    return revokenize(Revokenizer(source, str(tokenizer)), [text], out)


def test_vokens_by_hand_with_their_scores(tokenizers, tmp_path):
    """Pieces of a BERT to those of a sentencepiece and of a byte-level tokenizer; the first two have no voken.

    "A dog runs."   characters 0 A, 2-4 dog, 6-8 run, 9 s, 10 .
    w               a dog run ##s .     vokens -1 -1 2 3 4
    u               ▁A ▁dog ▁runs.      ▁runs. is [6, 11): run 3/5, ##s 1/5, . 1/5
    u               A Ġd og Ġrun s .    Ġd is [2, 3), og is [3, 5): dog
    "狗 ."           0 狗, 2 .
    w               <unk> .             vokens 0 1
    u               ▁ <unk> ▁ .         a mark alone has the place of the letter behind it
    u               ç ĭ Ĺ Ġ .           three bytes of one letter, white space
    """
    vokens = [[-1, -1, 2, 3, 4], [], [0, 1]]
    kept = [0, 0, 0.25, 0.5, 0.75, 1, 0.125]
    source, text = source_of(tmp_path, tokenizers["wordpiece"], ["A dog runs.", "", "狗 ."], vokens=vokens, scores=kept)
    for family, expected, scores, counts in (
        ("unigram", [[-1, -1, 2], [], [0, 0, 1, 1]], [0, 0, 0.25, 1, 1, 0.125, 0.125], (1, 0, 2)),
        (
            "bytes",
            [[-1, -1, -1, 2, 3, 4], [], [0, 0, 0, -1, 1]],
            [0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1, 0, 0.125],
            (1, 1, 3),
        ),
    ):
        made = made_of(source, text, tokenizers[family], tmp_path / family)
        assert [made.of_line(line).tolist() for line in range(3)] == expected
        assert made.scores.tolist() == scores
        assert made.counts == dict(zip(("empty", "unmatched", "ignored"), counts))


def test_made_vokens_are_whole_and_say_what_they_were_made_of(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"], label="sentence")
    made = made_of(source, text, tokenizers["bytes"], tmp_path / "out")
    made.check_range()
    bridge = TokenizerBridge(str(tokenizers["bytes"]))
    expected = [bridge.line_of(numbers) for numbers in bridge.numbers_of(LINES)]
    assert list(made.token_lines()) == expected and made.tokens_sha256 == sha256_of_lines(expected)
    assert made.bridge().sha256 == bridge.sha256 and list(made.keys()) == list(source.keys())
    assert (made.label, made.size, made.lines, made.scores) == ("sentence", 5, 6, None)
    assert made.text_sha256 == source.text_sha256 == sha256_of_lines(LINES)
    signed = f"revokenize|tokenizer:{bridge.sha256[:8]}|from_tokenizer:{source.tokenizer_sha256[:8]}"
    assert made.signature.startswith(f"{signed}|vokens:vokenize/by:hand|version:")
    back = made_of(made, text, tokenizers["wordpiece"], tmp_path / "back")  # vokens are vokens
    assert list(back.token_lines()) == list(source.token_lines())


def test_compressed_text_is_the_same(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    (tmp_path / "text.gz").write_bytes(gzip.compress(text.read_bytes()))
    plain = made_of(source, text, tokenizers["t5"], tmp_path / "plain")
    packed = made_of(source, tmp_path / "text.gz", tokenizers["t5"], tmp_path / "packed")
    assert content_of(plain.folder) == content_of(packed.folder)


def test_text_may_lie_in_several_files(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    parts = [tmp_path / "first", tmp_path / "second"]
    for part, lines in zip(parts, (LINES[:2], LINES[2:])):
        part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    whole = made_of(source, text, tokenizers["t5"], tmp_path / "whole")
    made = revokenize(Revokenizer(source, str(tokenizers["t5"])), parts, tmp_path / "parts")
    assert content_of(made.folder) == content_of(whole.folder)
    with pytest.raises(InputError, match=r"second and .*first should be the text .* but has as many lines, 6, and"):
        revokenize(Revokenizer(source, str(tokenizers["t5"])), parts[::-1], tmp_path / "out")


def test_text_without_a_line_makes_vokens_without_any(tokenizers, tmp_path):
    for number, lines in enumerate(([], ["", ""])):
        (tmp_path / str(number)).mkdir()
        source, text = source_of(tmp_path / str(number), tokenizers["wordpiece"], lines)
        made = made_of(source, text, tokenizers["bytes"], tmp_path / f"out{number}")
        assert (made.lines, made.tokens, made.counts["empty"]) == (len(lines), 0, len(lines))


def test_line_of_a_million_characters_has_its_vokens(tokenizers, tmp_path):
    """A sentence 25,000 times, whose i-th piece has voken i: the b-th sentence begins with voken 5 b."""
    source, text = source_of(
        tmp_path, tokenizers["wordpiece"], ["A dog", "A dog runs.".ljust(40) * 25_000, "A"], size=150_000
    )
    made = made_of(source, text, tokenizers["unigram"], tmp_path / "out")  # ▁A ▁dog ▁runs.
    first = source.offsets[1] + 5 * np.arange(25_000)
    assert (made.of_line(1).reshape(-1, 3) == first[:, None] + [0, 1, 2]).all()
    assert made.of_line(0).tolist() == [0, 1] and made.of_line(2).tolist() == [source.offsets[2]]


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_killed_at_any_step_it_continues_to_the_same_bytes(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setattr(revokenization, "SHARD_LINES", 2)
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    revokenizer = Revokenizer(source, str(tokenizers["bytes"]))
    revokenize(revokenizer, [text], tmp_path / "whole")
    steps = [
        (growing, "array_header"),
        (shards, "write_json"),
        (GrowingArtefact, "join_text"),
        (Path, "rename"),
    ]
    killed, out = 0, [tmp_path / "out1"]
    for killed in killed_at_each_step(lambda: revokenize(revokenizer, [text], out[-1]), *steps):
        revokenize(revokenizer, [text], out[-1])
        assert content_of(out[-1]) == content_of(tmp_path / "whole")
        out.append(tmp_path / f"out{killed + 1}")
    assert killed > 10
    assert "tokenizer/tokenizer.json" in content_of(tmp_path / "whole") and not list(tmp_path.glob("*.partial"))


def test_only_what_is_missing_is_done_again(tokenizers, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(revokenization, "SHARD_LINES", 2)
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    revokenizer, cut = Revokenizer(source, str(tokenizers["bytes"])), []
    monkeypatch.setattr(revokenizer, "cut", lambda texts: cut.append(texts) or Revokenizer.cut(revokenizer, texts))

    def refuse(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(revokenization, "_publish", refuse)
        with pytest.raises(KeyboardInterrupt):
            revokenize(revokenizer, [text], tmp_path / "out")
    assert cut == [LINES[:2], LINES[2:4], LINES[4:]]
    revokenize(revokenizer, [text], tmp_path / "out")
    assert len(cut) == 3
    assert "is there already" not in capsys.readouterr().err
    revokenize(revokenizer, [text], tmp_path / "out")  # finished
    assert len(cut) == 3 and "is there already" in capsys.readouterr().err


def test_two_ranks_make_the_same(tokenizers, tmp_path, monkeypatch):
    monkeypatch.setattr(revokenization, "SHARD_LINES", 2)
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    made_of(source, text, tokenizers["bytes"], tmp_path / "one")
    ranks = iter([Rank(0, 2, "job"), Rank(1, 2, "job")])
    monkeypatch.setattr(revokenization, "GrowingArtefact", lambda *args: GrowingArtefact(*args, rank=next(ranks)))
    with ThreadPoolExecutor(2) as pool:  # each waits for the other
        jobs = [pool.submit(made_of, source, text, tokenizers["bytes"], tmp_path / "two") for _ in range(2)]
        for job in jobs:
            job.result()
    assert content_of(tmp_path / "two") == content_of(tmp_path / "one")


@pytest.mark.parametrize(
    ("lines", "many"),
    [
        (["A dog runs", *LINES[1:]], "as many lines, 6,"),
        (LINES[:-1], "5 lines"),
        ([], "0 lines"),
    ],
)
def test_another_text_is_refused_before_anything_is_made(tokenizers, tmp_path, lines, many):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    digest, other = sha256_of_lines(LINES), sha256_of_lines(lines)
    message = rf"has the vokens of, 6 lines with sha256 {digest}, but has {many} and sha256 {other}"
    with pytest.raises(InputError, match=message):
        made_of(source, text, tokenizers["bytes"], tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["source", "text"]


def test_standard_input_is_refused(tokenizers, tmp_path):
    source, _ = source_of(tmp_path, tokenizers["wordpiece"])
    with pytest.raises(InputError, match="should be a file, as it is read twice"):
        made_of(source, Path("-"), tokenizers["bytes"], tmp_path / "out")


def test_pieces_that_the_tokenizer_does_not_make_are_refused(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    tokens = source.folder / "tokens.txt"
    lines = tokens.read_text().split("\n")
    lines[2] = lines[2].replace(" s ", " x ")
    tokens.write_text("\n".join(lines))
    message = r"in line 3 it has 'x ##i ##t' where the tokenizer makes 's ##i ##t', after 8 pieces that are the same"
    with pytest.raises(InputError, match=message):
        made_of(source, text, tokenizers["bytes"], tmp_path / "out")


def test_vokens_beyond_the_candidates_are_refused(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    vokens = np.load(source.folder / "vokens.npy")
    vokens[2] = 5
    np.save(source.folder / "vokens.npy", vokens)
    with pytest.raises(InputError, match=r"its 5 candidates, 0\.\.4, or -1 for none, but has 5 at 2"):
        made_of(Vokens(source.folder), text, tokenizers["bytes"], tmp_path / "out")


def test_vokens_that_were_changed_are_refused(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    vokens = np.load(source.folder / "vokens.npy")
    vokens[2] = (vokens[2] + 1) % 5
    np.save(source.folder / "vokens.npy", vokens)
    with pytest.raises(InputError, match=r"vokens\.npy isn't what was written: its sha256 isn't the one in meta\.json"):
        made_of(Vokens(source.folder), text, tokenizers["bytes"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_whoever_made_the_vokens_is_asked_to_make_them_again(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    made = made_of(source, text, tokenizers["bytes"], tmp_path / "made")
    for folder, verb in ((source.folder, "vokenize"), (made.folder, "revokenize")):
        np.save(folder / "more.npy", np.zeros(1))
        with pytest.raises(
            InputError, match=rf"Delete .*{folder.name}, and make it again with: visual-grounding {verb}$"
        ):
            Vokens(folder).check_arrays()


def test_text_that_shrinks_while_it_is_read_is_refused(tokenizers, tmp_path, monkeypatch):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    checked = revokenization.check_text

    def check_then_cut(source: Vokens, texts: list[Path]) -> None:
        checked(source, texts)
        text.write_text("A dog runs.\n\n")

    monkeypatch.setattr(revokenization, "check_text", check_then_cut)
    with pytest.raises(InputError, match="changed while it was read: it had 6 lines, and now 2"):
        made_of(source, text, tokenizers["bytes"], tmp_path / "out")


def test_other_vokens_of_the_same_text_are_another_output(tokenizers, tmp_path):
    source, text = source_of(tmp_path, tokenizers["wordpiece"])
    made_of(source, text, tokenizers["bytes"], tmp_path / "out")
    other = Vokens(write_vokens(tmp_path / "other", LINES, tokenizers["wordpiece"], size=9))
    with pytest.raises(InputError, match=r"made with other choices \(other vokens\)"):
        made_of(other, text, tokenizers["bytes"], tmp_path / "out")
    with pytest.raises(InputError, match=r"made with other choices \(other tokenizer\)"):
        made_of(source, text, tokenizers["gpt2"], tmp_path / "out")
