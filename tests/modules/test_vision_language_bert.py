"""VLP eq. 1: transformers' BERT where there is text alone, else a naive construction; masks, cuts, gradients."""

import pytest
import torch
from fairseq.data import Dictionary
from small_tokenizers import minilm

from visual_grounding import InputError
from visual_grounding.data.pretrained_pieces import dictionary_of
from visual_grounding.modules.pretrained_bert import bert_config, read_bert
from visual_grounding.modules.vision_language_bert import MaskedWordHead, PairedImageHead, VisionLanguageBert
from visual_grounding.text.pretrained_tokenizer import composed
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

TEXTS = ["A dog runs over the street.", "Two birds  sit on the roof, singing!", "skateboarding", ""]
CLS, PAD, SEP = 0, 1, 2
CHOICES = {
    "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 12,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "initializer_range": 0.02,
}  # fmt: skip
TOKENS = torch.tensor([[5, 6, 7, SEP], [PAD, PAD, 8, SEP], [9, 8, SEP, PAD]])  # padded on either side
TAGS = torch.tensor([[5, 9], [PAD, PAD], [6, PAD]])


def stream(feature_size: int = 3, **choices: object) -> VisionLanguageBert:
    torch.manual_seed(1)
    made = VisionLanguageBert(bert_config({**CHOICES, **choices}, 10), feature_size).eval()
    with torch.no_grad():
        for weight in made.parameters():  # norms and biases, too
            weight.normal_(std=0.5)
    return made


def visual(tags: torch.Tensor | None = TAGS) -> dict[str, torch.Tensor]:
    """B = 3, N = 1, R = 2: both regions, one, none."""
    torch.manual_seed(2)
    corner = torch.rand(3, 1, 2, 2) / 2
    given = {
        "features": torch.randn(3, 1, 2, 3).half(), "boxes": torch.cat([corner, corner + 0.3], dim=-1),
        "padding_mask": torch.tensor([[[0, 0]], [[0, 1]], [[1, 1]]]).bool(),
    }  # fmt: skip
    return given if tags is None else {**given, "tags": tags}


def rows_of(found, row: int) -> torch.Tensor:
    """What is there of one sentence: text, then regions."""
    absent = torch.cat([found.text_padding_mask, found.region_padding_mask], dim=1)[row]
    return found.hidden[row][~absent]


@pytest.fixture(scope="module")
def dictionary() -> Dictionary:
    return dictionary_of(TokenizerBridge(str(minilm())))


def test_text_alone_gives_the_outputs_of_transformers(dictionary):
    from transformers import AutoModel, AutoTokenizer

    read = read_bert(str(minilm()), dictionary.symbols, "dict.txt")
    made = VisionLanguageBert(bert_config(read.choices, len(dictionary)), 0).eval()
    made.bert.load_state_dict({name.removeprefix("bert."): value for name, value in read.body.items()})
    bridge = TokenizerBridge(str(minilm()))
    lines = [[*numbers, SEP] for numbers in bridge.numbers_of(TEXTS)]
    longest = max(map(len, lines))
    padded = torch.tensor([[PAD] * (longest - len(line)) + line for line in lines])
    tokenizer, model = AutoTokenizer.from_pretrained(minilm()), AutoModel.from_pretrained(minilm()).eval()
    with torch.no_grad():
        found = made(padded)
        for row, text in enumerate(TEXTS):
            own = model(**tokenizer(composed(text), return_tensors="pt")).last_hidden_state[0]
            torch.testing.assert_close(rows_of(found, row), own, rtol=0, atol=1e-5)
    assert made.max_positions == 511 and found.region_padding_mask.shape == (4, 0)


def test_eq_1_agrees_with_a_naive_construction_of_transformers_own_modules():
    """Sentence by sentence, no padding: the embedding of [CLS] x [SEP] t [SEP], regions behind it, BERT's layers."""
    made, given = stream(), visual()
    with torch.no_grad():
        found = made(TOKENS, given)
        for row in range(3):
            text, tags = ([int(n) for n in tokens[row] if n != PAD] for tokens in (TOKENS, TAGS))
            line = [CLS, *text, *([*tags, SEP] if tags else [])]
            segments = [0] * (1 + len(text)) + [1] * (len(line) - 1 - len(text))
            x = made.bert.embeddings(torch.tensor([line]), torch.tensor([segments]))
            for region in range(2):
                if not given["padding_mask"][row, 0, region]:
                    x0, y0, x1, y1 = given["boxes"][row, 0, region].tolist()
                    v = [*given["features"][row, 0, region].tolist(), x0, y0, x1, y1, x1 - x0, y1 - y0]
                    linear = made.image_projection.linear
                    x = torch.cat([x, (linear.weight @ torch.tensor(v) + linear.bias).view(1, 1, -1)], dim=1)
            for layer in made.bert.encoder.layer:
                x = layer(x)
            torch.testing.assert_close(rows_of(found, row), x[0], rtol=0, atol=1e-5)


def test_tags_are_of_the_first_segment_where_bert_has_one_alone():
    made = stream(type_vocab_size=1)
    with torch.no_grad():
        assert made(TOKENS, visual()).hidden.isfinite().all()


def test_regions_that_are_all_absent_and_no_tags_are_text_alone():
    made, given = stream(), visual(torch.full((3, 1), PAD))
    given["padding_mask"] = torch.ones(3, 1, 2).bool()
    with torch.no_grad():
        alone, blank = made(TOKENS), made(TOKENS, given)
    for row in range(3):
        torch.testing.assert_close(rows_of(blank, row), rows_of(alone, row), rtol=0, atol=1e-6)


def test_more_padding_changes_nothing():
    made, given = stream(), visual()
    wide = {
        "features": torch.cat([given["features"], torch.full((3, 1, 1, 3), 9.0)], dim=2),
        "boxes": torch.cat([given["boxes"], torch.ones(3, 1, 1, 4)], dim=2),
        "padding_mask": torch.cat([given["padding_mask"], torch.ones(3, 1, 1).bool()], dim=2),
        "tags": torch.cat([TAGS, torch.full((3, 1), PAD)], dim=1),
    }
    pad = torch.full((3, 1), PAD)
    with torch.no_grad():
        narrow, other = made(TOKENS, given), made(torch.cat([pad, TOKENS, pad], dim=1), wide)
    for row in range(3):
        torch.testing.assert_close(rows_of(other, row), rows_of(narrow, row), rtol=0, atol=1e-6)


def test_tags_that_no_position_is_left_for_are_cut_and_counted(caplog):
    """12 positions, of which [CLS], three words and [SEP] take 5, and one [SEP] more: 6 tags fit."""
    made = stream(0)
    tags = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7], [6] + [PAD] * 7])
    tokens = torch.tensor([[5, 6, 7, SEP], [8, SEP, PAD, PAD]])
    with torch.no_grad():
        cut = made._text(tokens, tags)
        shorter = made._text(tokens, tags[:, :6])
    assert cut[3].tolist() == [[True] * 6 + [False] * 2, [True] + [False] * 7]
    for row in range(2):
        assert cut[0][row][cut[1][row]].tolist() == shorter[0][row][shorter[1][row]].tolist()
    assert int(cut[1].sum(dim=1).max()) == 12
    assert caplog.text.count("1 of 2 sentences of a batch (50.0 %) have more tags than BERT's 12 positions hold") == 1
    made._text(tokens, tags)
    assert caplog.text.count("have more tags") == 1


def test_source_that_there_are_no_positions_for_is_refused():
    made = stream(0)
    assert made(torch.tensor([[5] * 10 + [SEP]])).hidden.shape == (1, 12, 8)
    with pytest.raises(
        InputError, match=r"at most 11 pieces with its end, as BERT has 12 positions, but one has 12\. C"
    ):
        made(torch.tensor([[5] * 11 + [SEP]]))


def test_images_for_a_model_of_text_alone_are_a_mistake():
    with pytest.raises(ValueError, match="built for text alone"):
        stream(0)(TOKENS, visual())


def test_dropout_follows_the_mode():
    made, given = stream(), visual()
    assert torch.equal(made(TOKENS, given).hidden, made(TOKENS, given).hidden)
    made.train()
    first, second = (made(TOKENS, given).hidden for _ in range(2))
    assert not torch.equal(first, second)


def test_dropout_of_regions_is_that_of_bert():
    made, given = stream(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train(), visual()
    assert torch.equal(made(TOKENS, given).hidden, made(TOKENS, given).hidden)
    made.image_projection.dropout.p = 0.5
    assert not torch.equal(made(TOKENS, given).hidden, made(TOKENS, given).hidden)
    assert stream(hidden_dropout_prob=0.3).image_projection.dropout.p == 0.3


def test_a_gradient_reaches_every_parameter():
    made = stream()
    heads = MaskedWordHead(made.bert.config), PairedImageHead(made.bert.config)
    found = made(TOKENS, visual())
    # Of random weights: the sum of a norm's outputs would have no gradient before it.
    loss = (heads[0](found.hidden[:, 1], made.words) * torch.randn(3, 10)).sum() + heads[1](found.hidden[:, 0]).sum()
    loss.backward()
    for module in (made, *heads):
        for name, weight in module.named_parameters():
            assert weight.grad is not None and weight.grad.abs().sum() > 0, name


def test_head_is_that_of_transformers():
    from transformers import BertForMaskedLM

    made = stream()
    whole = BertForMaskedLM(made.bert.config).eval()
    for weight in whole.parameters():
        torch.nn.init.normal_(weight)
    head = MaskedWordHead(made.bert.config)
    own = whole.cls.predictions.state_dict()
    head.load_state_dict({name: value for name, value in own.items() if not name.startswith("decoder.")})
    hidden = torch.randn(4, 8)
    with torch.no_grad():
        logits = head(hidden, whole.bert.embeddings.word_embeddings.weight)
        torch.testing.assert_close(logits, whole.cls(hidden), rtol=1e-5, atol=1e-5)


def test_paired_head_is_one_number_of_the_first_state():
    head = PairedImageHead(stream().bert.config)
    first = torch.randn(3, 8)
    torch.testing.assert_close(head(first), first @ head.output.weight[0] + head.output.bias)
