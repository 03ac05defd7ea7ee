"""A pretrained dual encoder as retriever: the library's own cosines, and the whole way in commands."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_store
from pictures import drawn_photo
from small_dual_encoder import SENTENCES, make_dual_encoder

from visual_grounding.cli.main import main
from visual_grounding.errors import InputError
from visual_grounding.features.backbones import load_backbone
from visual_grounding.features.store import FeatureStore
from visual_grounding.retrieval.dual_encoder import DualEncoderTokenizer
from visual_grounding.retrieval.export_dual_encoder import export_dual_encoder
from visual_grounding.retrieval.image_ids import ImageIds
from visual_grounding.retrieval.index import build_index
from visual_grounding.retrieval.retriever import Retriever

FAMILIES = ["clip", "siglip", "siglip2"]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dual_encoder(tmp_path_factory.mktemp("models") / request.param, request.param)


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("retrievers") / "retriever"
    export_dual_encoder(f"clip:{model}", folder)
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dual_encoder(tmp_path_factory.mktemp("models") / "clip", "clip")


@pytest.fixture(scope="module")
def clip_retriever(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("retrievers") / "clip"
    export_dual_encoder(str(clip), folder)
    return folder


def library_cosines(model: Path, images: list) -> torch.Tensor:
    """Sentences by pictures, by transformers' own processors and full model, padded as each model's card says."""
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    whole = AutoModel.from_pretrained(model).eval()
    padding = {"padding": True} if model.name == "clip" else {"padding": "max_length"}
    text = AutoTokenizer.from_pretrained(model)(SENTENCES, return_tensors="pt", truncation=True, **padding)
    pixels = AutoImageProcessor.from_pretrained(model)(images=images, return_tensors="pt")
    with torch.no_grad():
        found = [whole.get_text_features(**text), whole.get_image_features(**pixels)]
    sentences, pictures = (each if isinstance(each, torch.Tensor) else each.pooler_output for each in found)
    return torch.nn.functional.normalize(sentences, dim=-1) @ torch.nn.functional.normalize(pictures, dim=-1).T


def pictures() -> list:
    return [drawn_photo(60 + 30 * number, 150 - 20 * number) for number in range(5)]


def test_cosines_equal_the_librarys_full_model(model: Path, exported: Path) -> None:
    backbone, retriever = load_backbone(f"clip:{model}"), Retriever.load(exported)
    pixels = torch.from_numpy(np.stack([backbone.preprocessing.pixels(image) for image in pictures()]))
    with torch.no_grad():
        vectors = backbone.own(backbone.preprocessing.normalise(pixels))
    images = retriever.encode_images(vectors.unsqueeze(1), torch.zeros(5, 1, dtype=torch.bool))
    expected = library_cosines(model, pictures())
    assert expected.max() - expected.min() > 0.01
    for batch_size in (1, 2, 256):
        found = retriever.encode_text(SENTENCES, batch_size) @ images.T
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_long_sentences_are_cut_with_their_closing_symbol_and_counted(model: Path, exported: Path) -> None:
    retriever = Retriever.load(exported)
    tokens, cut = retriever.tokenize(["a dog", "dog " * 40])
    assert cut == 1 and retriever.max_tokens == 16
    from transformers import AutoTokenizer

    end = AutoTokenizer.from_pretrained(model).eos_token_id
    assert len(tokens[1]) == 16 and tokens[1][-1] == end
    assert len(tokens[0]) == (5 if model.name == "clip" else 16)  # SigLIP sees its padding; "d o" is one piece
    assert retriever.tokenize([]) == ([], 0)


def test_checkpoint_in_half_precision_is_computed_in_float32(model: Path, exported: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    shutil.copytree(model, tmp_path / "half")
    AutoModel.from_pretrained(model).half().save_pretrained(tmp_path / "half")
    backbone = load_backbone(f"clip:{tmp_path / 'half'}")
    assert {weight.dtype for weight in backbone.network.parameters()} == {torch.float32}
    export_dual_encoder(str(tmp_path / "half"), tmp_path / "retriever")
    retriever = Retriever.load(tmp_path / "retriever")
    assert {weight.dtype for weight in retriever.text.parameters()} == {torch.float32}
    found, whole = retriever.encode_text(SENTENCES), Retriever.load(exported).encode_text(SENTENCES)
    assert not torch.equal(found, whole) and (found * whole).sum(dim=1).min() > 0.9999


def test_absent_images_are_zero(exported: Path) -> None:
    retriever = Retriever.load(exported)
    vectors = retriever.encode_images(torch.ones(2, 1, retriever.joint_size), torch.tensor([[False], [True]]))
    assert vectors.norm(dim=1).tolist() == pytest.approx([1, 0])


def test_empty_sentence_is_zero_though_it_has_special_tokens(exported: Path) -> None:
    retriever = Retriever.load(exported)
    assert retriever.tokenize([""])[0][0]
    assert retriever.encode_text(["", " ", SENTENCES[0]]).any(dim=1).tolist() == [False, False, True]


def test_every_step_is_a_command(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: object) -> str:
        status = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        assert "doesn't say how the features" not in printed.err  # export remembers the images' network
        return printed.out

    (tmp_path / "photos").mkdir()
    for number, image in enumerate(pictures()):
        image.save(tmp_path / f"photos/{number}.png")
    (tmp_path / "photos/5.png").write_bytes(b"broken")
    (tmp_path / "text").write_text("\n".join([*SENTENCES, ""]) + "\n", encoding="utf-8")
    store, folder, index, ids = (tmp_path / name for name in ("store", "retriever", "index", "ids"))
    extract = ["--images", tmp_path / "photos", "--backbone", f"clip:{model}", "--pool", "own", "--device", "cpu"]
    run("extract", *extract, "--out", store)
    said = run("export", "--dual-encoder", model, "--out", folder)
    size = 20 if model.name == "clip" else 24
    assert f"{model.name.removesuffix('2')} text tower, joint size {size}, sentences of up to 16 tokens\n" in said
    assert "\nretriever|dual_encoder:" in said
    retriever = ["--retriever", folder, "--device", "cpu"]
    assert "1 of 6 images have no features" in run("index", *retriever, "--image-features", store, "--out", index)
    run(
        "retrieve",
        "--method",
        "dense",
        *retriever,
        "--index",
        index,
        "--text",
        tmp_path / "text",
        "-n",
        5,
        "--out",
        ids,
    )
    table, expected = ImageIds(ids), library_cosines(model, pictures()).numpy()
    assert table.ids[5].tolist() == [-1] * 5
    for number in range(len(SENTENCES)):
        assert sorted(table.ids[number].tolist()) == [0, 1, 2, 3, 4]
        # The store holds float16: cosines within 1e-3.
        np.testing.assert_allclose(table.scores[number], expected[number, table.ids[number]], atol=2e-3)
        assert (np.diff(table.scores[number].astype(float)) <= 0).all()


def test_store_of_other_weights_or_pooling_is_refused(model: Path, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    drawn_photo(60, 60).save(tmp_path / "photos/a.png")
    other = make_dual_encoder(tmp_path / model.name, model.name, seed=1)
    retriever = Retriever.load(exported)

    def refused(backbone: Path, pool: str, message: str) -> None:
        out = tmp_path / f"{backbone.parent.name}-{pool}"
        flags = ["--images", tmp_path / "photos", "--backbone", f"clip:{backbone}", "--pool", pool, "--out", out]
        assert main(["extract", "--device", "cpu", *map(str, flags)]) == 0
        with pytest.raises(InputError, match=message):
            build_index(retriever, FeatureStore(out), tmp_path / "index")
        assert not (tmp_path / "index").exists() and not (tmp_path / "index.partial").exists()

    ours, theirs = load_backbone(f"clip:{model}").weights, load_backbone(f"clip:{other}").weights
    refused(other, "own", rf"\(another weights\): .*weights:{theirs}.* ≠ extract\|weights:{ours}\|pool:own")
    refused(model, "mean", r"\(another pool\): .*pool:mean.* Make them with: visual-grounding extract --pool own")
    imported = write_store(tmp_path / "imported", np.ones((3, 1, retriever.joint_size)))
    with pytest.raises(InputError, match=rf"\(test instead of extract\): test ≠ .*weights:{ours}"):
        build_index(retriever, FeatureStore(imported), tmp_path / "index")


def test_store_of_the_same_tower_is_taken_whatever_its_precision_and_another_one_unchecked(
    model: Path, exported: Path, tmp_path: Path
) -> None:
    retriever = Retriever.load(exported)
    (tmp_path / "photos").mkdir()
    drawn_photo(60, 60).save(tmp_path / "photos/a.png")
    shutil.copytree(model, tmp_path / "elsewhere")
    flags = ["--images", tmp_path / "photos", "--backbone", f"clip:{tmp_path / 'elsewhere'}", "--pool", "own"]
    flags += ["--precision", "bfloat16", "--device", "cpu", "--out", tmp_path / "store"]
    assert main(["extract", *map(str, flags)]) == 0
    retriever.check_store(FeatureStore(tmp_path / "store"))
    imported = FeatureStore(write_store(tmp_path / "imported", np.ones((3, 1, retriever.joint_size))))
    retriever.check_store(imported, features_unchecked=True)
    with pytest.raises(InputError, match="should project each region of an image, but takes images as a whole"):
        retriever.check_cells(imported)
    with pytest.raises(InputError, match="should project each region of an image, but takes images as a whole"):
        retriever.encode_cells(torch.ones(1, 2, 3))


def test_folder_of_before_it_said_its_kind_is_the_retriever_that_it_was(clip_retriever: Path, tmp_path: Path) -> None:
    folder = tmp_path / "retriever"
    shutil.copytree(clip_retriever, folder)
    said = json.loads((folder / "config.json").read_text())
    assert said.pop("kind") == "dual_encoder" and said.pop("image_features").startswith("extract|weights:sha256-")
    (folder / "config.json").write_text(json.dumps(said))
    old, new = Retriever.load(folder), Retriever.load(clip_retriever)
    assert (old.kind, old.image_features) == (new.kind, new.image_features) and not old.why_unchecked
    assert torch.equal(old.encode_text(SENTENCES), new.encode_text(SENTENCES))
    imported = FeatureStore(write_store(tmp_path / "imported", np.ones((3, 1, old.joint_size))))
    with pytest.raises(InputError, match=r"test instead of extract"):
        old.check_store(imported)


def test_images_of_another_size_are_refused(exported: Path) -> None:
    retriever = Retriever.load(exported)
    size = retriever.joint_size
    with pytest.raises(InputError, match=rf"images of 1 region with {size} numbers, but these have 1 with {size + 1}"):
        retriever.encode_images(torch.ones(2, 1, size + 1), torch.zeros(2, 1, dtype=torch.bool))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda f: (f / "model.safetensors").unlink(),
            r"model.safetensors should be a state_dict .* but doesn.t exist\. Make it again with",
        ),
        (
            lambda f: (f / "model.safetensors").write_bytes(b"x" * 20),
            r"should be a state_dict of plain tensors, but can.t be read: .*eader",
        ),
        (
            lambda f: (f / "text_encoder/tokenizer.json").write_text("{"),
            r"should hold a whole dual encoder, but doesn't",
        ),
        (
            lambda f: (f / "text_encoder/config.json").unlink(),
            r"should hold a whole dual encoder, but doesn't: .*config.json",
        ),
        (lambda f: edit_tower(f, hidden_size=64), r"weights of the text tower of a clip, but .*Make it again with"),
        (lambda f: edit_tower(f, hidden_size=2**20, num_attention_heads=1), r"weights of the text tower of a clip"),
        (lambda f: edit_tower(f, num_hidden_layers=10**6), r"config.json has 1000000 as num_hidden_layers"),
        (
            lambda f: edit_architecture(f, max_tokens=10**9),
            r"config.json has 1000000000 max_tokens, its text tower \d+",
        ),
        (
            lambda f: edit_tower(f, hidden_act="nope"),
            r"text_encoder/config.json should have what .* 'nope'.*Make it again",
        ),
        (lambda f: edit_architecture(f, max_tokens=0), r"config.json has 0 max_tokens"),
        (lambda f: edit_architecture(f, dual_encoder="blip"), r"should hold a whole dual encoder, but doesn't: 'blip'"),
        (
            lambda f: edit_architecture(f, size=3),
            r"whole dual encoder, but doesn't: .*unexpected keyword argument 'size'",
        ),
    ],
)
def test_broken_retriever_is_refused(clip_retriever: Path, tmp_path: Path, break_it, message: str) -> None:
    folder = tmp_path / "retriever"
    shutil.copytree(clip_retriever, folder)
    break_it(folder)
    with pytest.raises(InputError, match=message):
        Retriever.load(folder)


@pytest.mark.parametrize(("pad", "found"), [(0, 0), (7, 7), (None, 0)])
def test_padding_is_the_tokenizers_where_it_has_any(pad: int | None, found: int) -> None:
    assert DualEncoderTokenizer(SimpleNamespace(pad_token_id=pad), 16, pads_text=False).pad == found


def edit_tower(folder: Path, **changes: object) -> None:
    path = folder / "text_encoder/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_architecture(folder: Path, **changes: object) -> None:
    description = json.loads((folder / "config.json").read_text())
    description["architecture"].update(changes)
    (folder / "config.json").write_text(json.dumps(description))


def test_export_refuses_what_is_no_dual_encoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import BertConfig, CLIPVisionModelWithProjection

    def refused(*flags: object) -> str:
        assert main(["export", *map(str, flags), "--out", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    BertConfig().save_pretrained(tmp_path / "bert")
    assert "of kind clip, siglip (SigLIP 2 of fixed size is a siglip), but its config.json says bert." in refused(
        "--dual-encoder", tmp_path / "bert"
    )
    clip = make_dual_encoder(tmp_path / "clip", "clip")
    CLIPVisionModelWithProjection.from_pretrained(clip).save_pretrained(tmp_path / "tower")
    (tmp_path / "tower/preprocessor_config.json").write_bytes((clip / "preprocessor_config.json").read_bytes())
    assert "should hold both towers of a dual encoder, but its config.json says clip_vision_model." in refused(
        "--dual-encoder", tmp_path / "tower"
    )
    assert "--data d belongs to --checkpoint" in refused("--dual-encoder", clip, "--data", "d")
    (clip / "tokenizer.json").write_text("{")
    assert f"tokenizer '{clip}' should be a folder with a pretrained model, or" in refused("--dual-encoder", clip)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (clip / name).unlink()
    assert "should have a tokenizer of the 75 pieces that its model embeds, but its" in refused("--dual-encoder", clip)


def test_retriever_of_the_same_model_is_the_same_and_needs_no_fairseq(
    clip: Path, clip_retriever: Path, tmp_path: Path
) -> None:
    script = f"""
import sys; sys.modules['fairseq'] = None
from visual_grounding.cli.main import main
from visual_grounding.retrieval.retriever import Retriever
assert main(['export', '--dual-encoder', {str(clip)!r}, '--out', {str(tmp_path / "again")!r}]) == 0
print(Retriever.load({str(tmp_path / "again")!r}).sha256)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split()[-1:] == [Retriever.load(clip_retriever).sha256], done.stderr
