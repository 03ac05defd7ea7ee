"""The quickstart's picture: whose attention it shows, and what it makes light."""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from small_trained import translator, write_world

from visual_grounding.probes.trained import load_split, load_trained

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "quickstart"))
from language import AMBIGUOUS
from senses import attention_on_regions, lit, sense_of


def test_attention_is_that_of_the_word_on_its_own_sentences_regions(tmp_path):
    world = write_world(tmp_path)
    path = translator(world, tmp_path / "model.pt", arch="visual_aware_transformer", updates=5)
    trained = load_trained(path, "grounded_translation", torch.device("cpu"), {})
    dataset = load_split(trained, "test")
    model = trained.model.encoder
    for row, word in ((0, 1), (3, 2)):
        found = attention_on_regions(trained, dataset, row, word)
        assert found.shape == (1, 2) and abs(found.sum() - 1) < 1e-6
        item = dataset.collater([dataset[row]])["net_input"]
        with torch.no_grad():
            text_only = {key: item[key] for key in ("src_tokens", "src_lengths")}
            state = type(model).__mro__[1].forward(model, **text_only)["encoder_out"][0][word, 0]  # (D,)
            regions = model.image_projection(item["visual"]["features"], item["visual"]["padding_mask"])[0]  # (2, D)
            attention = model.fusion.attention
            q, k = attention.query(state), attention.key(regions)
        heads = []
        for q_h, k_h in zip(q.chunk(attention.heads), k.chunk(attention.heads, dim=1)):
            heads.append(torch.softmax(k_h @ q_h / len(q_h) ** 0.5, dim=0))
        np.testing.assert_allclose(found[0], torch.stack(heads).mean(dim=0), atol=1e-6)


def test_the_most_attended_region_keeps_its_light():
    looked = np.full(16, 0.01)
    looked[5] = 0.85  # second row, second column
    found = lit(Image.new("RGB", (80, 80), (200, 100, 50)), looked)
    np.testing.assert_allclose(found[30, 30], np.array([200, 100, 50]) / 255, atol=0.02)
    assert found[70, 70].max() < 0.25 * 200 / 255


def test_senses_have_names_in_english():
    names = [sense_of(noun) for pair in AMBIGUOUS for noun in pair]
    assert names[2:4] == ["crane (bird)", "crane (machine)"] and len(set(names)) == len(names)
