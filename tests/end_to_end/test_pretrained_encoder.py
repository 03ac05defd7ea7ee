"""Text to a real BERT's pieces, to fairseq's data, to its own outputs, and on: trained, translated, text again."""

import importlib.util
import json
import re
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from commands import run_command
from fairseq.data import Dictionary, encoders
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from small_tokenizers import minilm

from visual_grounding.data.pretrained_pieces import dictionary_of
from visual_grounding.modules.encoder_input import EncoderInput
from visual_grounding.text.pretrained_tokenizer import composed
from visual_grounding.text.tokenizer_bridge import TokenizerBridge

# A plugin as somebody else would write it: a pretrained encoder before fairseq's own decoder.
PLUGIN = '''
import torch
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, register_model, register_model_architecture
from fairseq.models.transformer import Embedding, TransformerConfig, TransformerDecoder
from fairseq.models.transformer.transformer_legacy import base_architecture
from transformers import AutoModel

from visual_grounding.modules.encoder_input import EncoderInput
from visual_grounding.text.tokenizer_bridge import TokenizerBridge


class PretrainedEncoder(FairseqEncoder):
    """A BERT whose word embedding has fairseq's order."""

    def __init__(self, name, dictionary):
        super().__init__(dictionary)
        self.reads = EncoderInput(TokenizerBridge(name), dictionary.symbols, "the source dictionary")
        self.model = AutoModel.from_pretrained(name, add_pooling_layer=False)
        rows = self.reads.fairseq_rows(self.model.get_input_embeddings().weight)
        self.model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows, freeze=False))

    def forward(self, src_tokens, src_lengths=None, **kwargs):
        numbers, padding_mask = self.reads.arrange(src_tokens)
        hidden = self.model(input_ids=numbers, attention_mask=(~padding_mask).long()).last_hidden_state  # (B, T, D)
        return {"encoder_out": [hidden.transpose(0, 1)], "encoder_padding_mask": [padding_mask]}

    def reorder_encoder_out(self, encoder_out, new_order):
        return {
            "encoder_out": [encoder_out["encoder_out"][0].index_select(1, new_order)],
            "encoder_padding_mask": [encoder_out["encoder_padding_mask"][0].index_select(0, new_order)],
        }

    def max_positions(self):
        return self.reads.max_positions


@register_model("pretrained_before_decoder")
class PretrainedBeforeDecoder(FairseqEncoderDecoderModel):
    @staticmethod
    def add_args(parser):
        parser.add_argument("--pretrained", required=True)

    @classmethod
    def build_model(cls, args, task):
        encoder = PretrainedEncoder(args.pretrained, task.source_dictionary)
        base_architecture(args)
        target = task.target_dictionary
        embedding = Embedding(len(target), args.decoder_embed_dim, target.pad())
        return cls(encoder, TransformerDecoder(TransformerConfig.from_namespace(args), target, embedding))


@register_model_architecture("pretrained_before_decoder", "pretrained_before_decoder")
def small(args):
    args.encoder_embed_dim = 384
    args.decoder_embed_dim = 16
    args.decoder_ffn_embed_dim = 16
    args.decoder_layers = 1
    args.decoder_attention_heads = 2
    args.share_decoder_input_output_embed = True
'''

ENGLISH = [
    "A dog runs over the street.",
    "Two birds  sit on the roof, singing!",
    "A cafe\u0301 at NIGHT \u2014 photographed from the children's playground",
    "skateboarding unbelievably antidisestablishmentarianism \u72d7 \U0001f415",
    "",
    "the man",
]
GERMAN = [
    "Ein Hund läuft über die Straße.",
    "Zwei Vögel sitzen singend auf dem Dach!",
    "Ein Café bei Nacht, vom Spielplatz aus photographiert",
    "unglaublich",
    "",
    "der Mann",
]
ARCHITECTURE = "pretrained_before_decoder"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw text through `prepare pieces` and `fairseq-preprocess`, and the plugin."""
    folder = tmp_path_factory.mktemp("pieces")
    for split, times in (("train", 4), ("valid", 1), ("test", 1)):
        for language, lines in (("en", ENGLISH), ("de", GERMAN)):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines * times), "utf-8")
    texts = [folder / f"{split}.{language}" for split in ("train", "valid", "test") for language in ("en", "de")]
    pieces = folder / "pieces"
    done = run_command(
        "visual-grounding", "prepare", "pieces", "--tokenizer", minilm(), "--text", *texts, "--out", pieces
    )
    assert done.returncode == 0, done.stderr
    done = run_command(
        "fairseq-preprocess", "--source-lang", "en", "--target-lang", "de", "--trainpref", pieces / "train",
        "--validpref", pieces / "valid", "--testpref", pieces / "test", "--srcdict", pieces / "dict.txt",
        "--tgtdict", pieces / "dict.txt", "--destdir", folder / "bin",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "plugin_of_bridge").mkdir()
    (folder / "plugin_of_bridge/__init__.py").write_text(PLUGIN)
    return folder


@pytest.fixture(scope="module")
def plugin(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plugin_of_bridge", folder / "plugin_of_bridge/__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plugin_of_bridge"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def batch(folder: Path) -> torch.Tensor:
    """(B, T) source tokens of the validation split in the corpus's order, padded on the left as fairseq does."""
    config = TranslationConfig(data=str(folder / "bin"), source_lang="en", target_lang="de")
    config.dataset_impl, config.num_batch_buckets, config.required_seq_len_multiple = None, 0, 1  # the commands' own
    task = TranslationTask.setup_task(config)
    task.load_dataset("valid")
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[row] for row in range(len(ENGLISH))])
    tokens = sample["net_input"]["src_tokens"][sample["id"].argsort()]
    assert tokens[-1, 0] == task.source_dictionary.pad()
    return tokens


@pytest.fixture(scope="module")
def own_outputs() -> list[torch.Tensor]:
    """What transformers itself gives for each raw sentence."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm()), AutoModel.from_pretrained(minilm()).eval()
    with torch.no_grad():
        return [model(**tokenizer(composed(text), return_tensors="pt")).last_hidden_state[0] for text in ENGLISH]


def check_outputs(hidden: torch.Tensor, padding_mask: torch.Tensor, own: list[torch.Tensor]) -> None:
    for row, absent, expected in zip(hidden, padding_mask, own, strict=True):
        torch.testing.assert_close(row[~absent], expected, rtol=0, atol=1e-5)


def test_binarised_data_gives_the_encoders_own_outputs_in_fairseqs_order(plugin, folder, batch, own_outputs):
    dictionary = Dictionary.load(str(folder / "bin/dict.en.txt"))
    encoder = plugin.PretrainedEncoder(str(minilm()), dictionary).eval()
    with torch.no_grad():
        found = encoder(batch)
    check_outputs(found["encoder_out"][0].transpose(0, 1), found["encoder_padding_mask"][0], own_outputs)
    assert encoder.max_positions() == 511  # 510 pieces and </s>; [CLS] is the encoder's own


def test_binarised_data_gives_the_encoders_own_outputs_in_its_own_order(folder, batch, own_outputs):
    from transformers import AutoModel

    symbols = Dictionary.load(str(folder / "bin/dict.en.txt")).symbols
    ids, padding_mask = EncoderInput(TokenizerBridge(str(minilm())), symbols, "dict.en.txt")(batch)
    with torch.no_grad():
        model = AutoModel.from_pretrained(minilm()).eval()
        hidden = model(input_ids=ids, attention_mask=(~padding_mask).long()).last_hidden_state
    check_outputs(hidden, padding_mask, own_outputs)


def test_preprocessing_keeps_the_dictionary_and_knows_every_piece(folder):
    bridge = TokenizerBridge(str(minilm()))
    for language in ("en", "de"):
        assert Dictionary.load(str(folder / f"bin/dict.{language}.txt")).symbols == bridge.symbols
    lines = (folder / "pieces/valid.en").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "a dog runs over the street ." and lines[4] == "" and len(lines) == len(ENGLISH)
    assert dictionary_of(bridge).symbols == bridge.symbols


@pytest.mark.slow
def test_encoder_trains_translates_and_gives_text_back(folder, tmp_path):
    bpe = ["--bpe", "pretrained_pieces", "--bpe-tokenizer", minilm()]
    common = [folder / "bin", "--user-dir", folder / "plugin_of_bridge", "--cpu", "--required-batch-size-multiple", 1]
    detokenised = json.dumps({"bpe_tokenizer": str(minilm())})
    done = run_command(
        "fairseq-train", *common, "--task", "translation", "--arch", ARCHITECTURE, "--pretrained", minilm(),
        "--optimizer", "adam", "--lr", 0.0001, "--criterion", "cross_entropy", "--batch-size", 8, "--max-update", 3,
        "--save-dir", tmp_path, "--no-epoch-checkpoints", "--seed", 1, "--no-progress-bar", "--log-format", "simple",
        "--eval-bleu", "--eval-bleu-detok", "pretrained_pieces", "--eval-bleu-detok-args", detokenised,
        "--eval-bleu-args", json.dumps({"beam": 1, "max_len_a": 0, "max_len_b": 5}), "--eval-bleu-print-samples",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    log = done.stdout + done.stderr
    assert re.search(r"valid.*\| bleu ", log), log
    references = re.findall(r"example reference: (.*)", log)
    tokenizer = encoders.build_tokenizer(Namespace(tokenizer="pretrained_pieces", bpe_tokenizer=str(minilm())))
    assert set(references) <= {tokenizer.decode(tokenizer.encode(line)) for line in GERMAN} and references

    common += ["--path", tmp_path / "checkpoint_best.pt", "--beam", 2, "--max-len-b", 6]
    done = run_command("fairseq-generate", *common, *bpe, "--scoring", "sacrebleu", "--required-batch-size-multiple", 1)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^([STHD]-\d+)\t(.*)$", done.stdout, re.MULTILINE))
    own = tokenizer.bridge.tokenizer
    for row, (source, target) in enumerate(zip(ENGLISH, GERMAN, strict=True)):
        for letter, text in (("S", source), ("T", target)):
            ids = own(composed(text), add_special_tokens=False)["input_ids"]
            assert found[f"{letter}-{row}"] == own.decode(ids)
        pieces, text = (found[f"{letter}-{row}"].partition("\t")[2] for letter in "HD")
        ids = own.convert_tokens_to_ids(pieces.replace("<unk>", "[UNK]").split())
        assert None not in ids and text == own.decode(ids)

    done = run_command("fairseq-validate", *common[:-4], "--task", "translation", "--batch-size", 4)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_typed_text_is_cut_into_pieces_and_comes_back_as_text(folder, tmp_path):
    done = run_command(
        "fairseq-train", folder / "bin", "--task", "translation", "--arch", "transformer", "--encoder-layers", 1,
        "--decoder-layers", 1, "--encoder-embed-dim", 8, "--decoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8,
        "--decoder-ffn-embed-dim", 8, "--encoder-attention-heads", 1, "--decoder-attention-heads", 1, "--optimizer",
        "adam", "--lr", 0.001, "--batch-size", 8, "--max-update", 1, "--save-dir", tmp_path, "--cpu",
        "--no-epoch-checkpoints", "--share-all-embeddings", "--required-batch-size-multiple", 1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (tmp_path / "typed").write_text("A Dog runs over the U\u0308BER-street\n", encoding="utf-8")
    done = run_command(
        "fairseq-interactive", folder / "bin", "--user-dir", folder / "plugin_of_bridge", "--path",
        tmp_path / "checkpoint_last.pt", "--bpe", "pretrained_pieces", "--bpe-tokenizer", minilm(), "--cpu",
        "--input", tmp_path / "typed", "--max-len-b", 4,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "S-0\ta dog runs over the uber - street\n" in done.stdout
    assert re.search(r"^D-0\t", done.stdout, re.MULTILINE)
    done = run_command(
        "fairseq-interactive", folder / "bin", "--user-dir", folder / "plugin_of_bridge", "--path",
        tmp_path / "checkpoint_last.pt", "--bpe", "pretrained_pieces", "--cpu", "--input", tmp_path / "typed",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: --bpe pretrained_pieces needs --bpe-tokenizer NAME|FOLDER, the one that made the pieces."
    )
