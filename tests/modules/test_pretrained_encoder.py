"""Encoders of every kind: equal to transformers' own in fairseq's numbers, and as layers; rebuilt without files."""

import json

import pytest
import torch
from fairseq.data import Dictionary
from small_grounded import KINDS, make_encoder
from transformers import AutoConfig

from visual_grounding.errors import InputError
from visual_grounding.modules.pretrained_encoder import (
    CrossModalEncoder,
    build_encoder,
    first_layers,
    model_of,
    read_dropout,
    read_encoder,
    read_layers,
)
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

SENTENCES = ["a red dog", "ball", "a big old bird near a roof"]


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("encoders") / request.param, request.param)


def dictionary_of(folder):
    made = Dictionary()
    for line in TokenizerBridge(str(folder)).dictionary_lines():
        made.add_symbol(line.split()[0])
    return made


def read(folder):
    found = read_encoder(str(folder), dictionary_of(folder).symbols, "dict.txt")
    encoder = build_encoder(json.loads(json.dumps(found.choices)))  # as a checkpoint keeps them
    encoder.model.load_state_dict(found.weights)
    return found, encoder.eval()


def rows(folder, left=False):
    numbers = [[*each, 2] for each in TokenizerBridge(str(folder)).numbers_of(SENTENCES)]
    longest = max(map(len, numbers))
    padded = [[1] * (longest - len(row)) + row if left else row + [1] * (longest - len(row)) for row in numbers]
    return torch.tensor(padded)


def theirs(folder):
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    given = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    ids, mask = given["input_ids"], given["attention_mask"]
    if model.config.model_type == "roberta":  # it counts positions from its own padding symbol on
        ids = ids.masked_fill(mask == 0, 1)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).last_hidden_state, mask == 0


@pytest.mark.parametrize("left", [False, True])
def test_states_are_those_of_transformers(folder, left):
    _, encoder = read(folder)
    expected, absent = theirs(folder)
    with torch.no_grad():
        states, padding_mask = encoder(rows(folder, left))
    assert padding_mask.tolist() == absent.tolist()
    assert torch.allclose(states[~padding_mask], expected[~absent], atol=1e-5)


def test_layers_are_those_of_transformers_without_the_embedding(folder):
    from transformers import AutoModel

    found = read_layers(str(folder))
    layers = CrossModalEncoder(found.choices)
    layers.load_encoder(found.weights)
    layers.eval()
    torch.manual_seed(1)
    states, absent = torch.randn(2, 5, layers.size), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    model = AutoModel.from_pretrained(folder).eval()
    attended = (~absent)[:, None, None]  # (B, 1, 1, L)
    with torch.no_grad():
        expected = states
        if folder.name == "albert":
            for _ in range(model.config.num_hidden_layers):
                expected = model.encoder.albert_layer_groups[0](expected, attended)
        elif folder.name == "distilbert":
            expected = model.transformer(hidden_states=expected, attention_mask=attended).last_hidden_state
        else:
            expected = model.encoder(expected, attention_mask=attended).last_hidden_state
        found = layers(states, absent)
    assert torch.allclose(found[~absent], expected[~absent], atol=1e-5)
    assert not any("embed" in name for name, _ in layers.named_parameters())


def test_every_weight_gets_a_gradient(folder):
    found, encoder = read(folder)
    layers = CrossModalEncoder(found.choices)
    states, absent = encoder.train()(rows(folder))
    layers(states, absent)[~absent].square().sum().backward()
    without = [
        name for name, weight in [*encoder.named_parameters(), *layers.named_parameters()] if weight.grad is None
    ]
    assert without == []


def test_words_have_the_dictionarys_rows(folder):
    from transformers import AutoModel, AutoTokenizer

    found, encoder = read(folder)
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    dictionary = dictionary_of(folder)
    expected = model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids("dog")]
    assert torch.equal(encoder.words[dictionary.index("dog")], expected)
    assert found.choices["max_positions"] == 23 and found.choices["opening"] == [0] and found.choices["closes"]


def test_positions_counted_from_another_padding_symbol_are_refused(tmp_path):
    folder = make_encoder(tmp_path / "roberta", "roberta")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": 0}))
    with pytest.raises(InputError, match=r"of kind 'roberta' do; that number should be 1, fairseq's, but is 0"):
        read(folder)


def test_a_text_longer_than_the_positions_is_refused(folder):
    _, encoder = read(folder)
    with pytest.raises(InputError, match="positions for 23 pieces of a text, its end included, but one has 24"):
        encoder(torch.full((1, 24), 5))


def test_dropout_is_set_whatever_its_name(folder):
    found = read_layers(str(folder))
    model = model_of(read_dropout(found.choices, 0.37))
    drops = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert drops == {0.37}


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "hidden_dropout", "dropout", "embedding_dropout"])
def test_a_chosen_dropout_is_that_of_states_whatever_the_configuration_calls_it(name):
    chosen = read_dropout({"config": {"model_type": "x", name: 0.1, "mlp_dropout": 0.0}, "closes": True}, 0.37)
    assert chosen["config"] == {"model_type": "x", name: 0.37, "mlp_dropout": 0.37} and chosen["closes"]
    assert chosen["dropout"] == 0.37
    with pytest.raises(InputError, match="but that of a x has none"):
        read_dropout({"config": {"model_type": "x", "layerdrop": 0.1}}, 0.37)


def test_states_have_the_dropout_that_was_chosen_where_the_configuration_has_another(folder):
    found, encoder = read(folder)
    own = encoder.dropout
    config = {name: value for name, value in found.choices["config"].items() if "dropout" not in name}
    bare = {**found.choices, "config": {**config, "attention_probs_dropout_prob": 0.0}}
    assert build_encoder(read_dropout(bare, 0.37)).dropout == 0.37
    assert build_encoder(found.choices).dropout == own


def test_text_of_another_tokenizer_is_refused(folder):
    symbols, own = dictionary_of(folder).symbols, TokenizerBridge(str(folder)).sha256
    assert read_encoder(str(folder), symbols, "dict.txt", own).choices
    with pytest.raises(InputError, match=f"whose sha256 is {own}, but was cut by another, 0{{64}}. Prepare it with"):
        read_encoder(str(folder), symbols, "dict.txt", "0" * 64)


def test_what_is_no_encoder_is_refused(tmp_path):
    from transformers import T5Config, T5Model

    make_encoder(tmp_path / "t5")
    T5Model(T5Config(d_model=8, num_layers=1, num_heads=2, d_ff=8, d_kv=4, vocab_size=20)).save_pretrained(
        tmp_path / "t5"
    )
    with pytest.raises(InputError, match=r"should be an encoder alone, .* but has a decoder"):
        read_layers(str(tmp_path / "t5"))
    with pytest.raises(InputError, match=r"'nowhere' should be .* but loading failed"):
        read_layers("nowhere")
    with pytest.raises(InputError, match="should know an encoder's kind, but doesn't"):
        model_of({"config": {"model_type": "nothing"}})
    from transformers import GPT2Config

    with pytest.raises(InputError, match=r"whose layers stand apart from its embedding, .* but is a gpt2"):
        CrossModalEncoder({"config": GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20).to_dict()})


def test_an_encoder_is_cut_behind_its_first_layers_or_does_not_say_how_many_it_has() -> None:
    for name in ("num_hidden_layers", "n_layers"):
        choices = {"config": {name: 6, "model_type": "kind"}, "closes": True}
        assert first_layers(choices, 2) == {"config": {name: 2, "model_type": "kind"}, "closes": True}
        assert choices["config"][name] == 6
    with pytest.raises(InputError, match="how many layers they have, as BERT's does, but that of a funnel doesn't"):
        first_layers({"config": {"model_type": "funnel"}}, 2)


def test_encoders_whose_embedding_is_of_another_class_are_built():
    """I-BERT's has numbers of its own, which it calls otherwise."""
    config = {"model_type": "ibert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "pad_token_id": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 12}
    kept = {"config": config, "opening": [8], "closes": True, "max_positions": 10, "segments": False}
    states, padding_mask = build_encoder(kept).eval()(torch.tensor([[4, 5, 2], [4, 2, 1]]))
    assert states.shape == (2, 4, 8) and padding_mask.tolist() == [[False] * 4, [False] * 3 + [True]]
    with pytest.raises(InputError, match="a list of numbers below 9, its words, as 'opening', but has \\[9\\]"):
        build_encoder({**kept, "opening": [9]})


def layers_of(kind: str, **more: object) -> CrossModalEncoder:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, **more}
    torch.manual_seed(0)
    return CrossModalEncoder({"config": AutoConfig.for_model(kind, vocab_size=40, **sizes).to_dict()})


@pytest.mark.parametrize("kind", ["bert", "albert", "roberta", "deberta-v2", "mobilebert"])
def test_layers_that_leave_out_what_is_absent_are_taken(kind):
    encoder = layers_of(kind).train()
    encoder.check_masks()
    assert encoder.training


@pytest.mark.parametrize(
    ("kind", "said"),
    [("fnet", "should leave out images that are absent, but in one of kind 'fnet' they change"),
     ("convbert", "should leave out images that are absent, but in one of kind 'convbert' they change"),
     ("longformer", "should read states that others made, but one of kind 'longformer' can't: StopIteration"),
     ("ibert", "should read states that others made, but one of kind 'ibert' can't: ")],
)  # fmt: skip
def test_layers_that_cannot_leave_out_what_is_absent_are_refused(kind, said):
    """A Fourier transform and a convolution mix positions, whatever a mask says."""
    encoder = layers_of(kind)
    with pytest.raises(InputError, match=said):
        encoder.check_masks()
