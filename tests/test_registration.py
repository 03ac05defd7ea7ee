"""fairseq and this package meet in any order; alone, neither loads the other.

Every test runs in fresh processes, since what is imported when is what they are about.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_command, run_python
from conftest import write_store
from PIL import Image
from small_retriever import make_retriever

from visual_grounding.fairseq_plugin import _known_mistake

IMPORT_ALL = """
import importlib, sys
from pathlib import Path
import visual_grounding

NEED_FAIRSEQ = {"tasks", "models", "criterions", "data", "probes"}
root = Path(visual_grounding.__file__).parent
files = [path.relative_to(root.parent).with_suffix("").parts for path in sorted(root.rglob("*.py"))]
names = [".".join(parts).removesuffix(".__init__") for parts in files if parts[1] not in NEED_FAIRSEQ]
for name in names:
    importlib.import_module(name)
    assert "fairseq" not in sys.modules, f"{name} imports fairseq"
    rooms = {loaded.split(".")[1] for loaded in sys.modules if loaded.startswith("visual_grounding.")}
    assert not NEED_FAIRSEQ & rooms, f"{name} imports {NEED_FAIRSEQ & rooms}"
print(len(names))
"""

# What must hold in the end: every name is registered, and a command line is parsed, with --user-dir and without it.
PARSE = """
import sys
from fairseq import options

def parse(*more):
    sys.argv = ["train", "bin", "--task", "grounded_translation", "--arch", "visual_aware_transformer_tiny"]
    sys.argv += ["--image-features", "f", *more]  # from here fairseq takes --user-dir
    args = options.parse_args_and_arch(options.get_training_parser())
    assert (args.task, args.image_features) == ("grounded_translation", "f")
"""
REGISTERED = """
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
assert {"grounded_translation", "image_text_matching"} <= set(TASK_REGISTRY), sorted(TASK_REGISTRY)
assert {"visual_aware_transformer", "visual_semantic_embedding"} <= set(MODEL_REGISTRY), sorted(MODEL_REGISTRY)
assert {"visual_aware_transformer_tiny", "gated_fusion_transformer"} <= set(ARCH_MODEL_REGISTRY)
assert "hardest_negative_triplet" in CRITERION_REGISTRY, sorted(CRITERION_REGISTRY)
"""
PARSES = REGISTERED + PARSE + "parse()\n"
USER_DIR_TOO = "parse('--user-dir', USER_DIR)\n"
LIGHT = "import sys; assert not {'fairseq', 'torch', 'numpy'} & set(sys.modules)\n"
INSTALLED = "import importlib.util; assert importlib.util.find_spec('fairseq').loader.get_code('fairseq')\n"
ORDERS = {
    "plugin, fairseq": f"import visual_grounding\n{LIGHT}import fairseq\n{PARSES}{USER_DIR_TOO}",
    "fairseq, plugin": f"import fairseq, visual_grounding\n{PARSES}{USER_DIR_TOO}",
    "a room, a part of fairseq": f"import visual_grounding.retrieval.index, fairseq.tasks\n{PARSES}{USER_DIR_TOO}",
    "asked whether fairseq is installed": f"import visual_grounding\n{2 * INSTALLED}{LIGHT}import fairseq\n{PARSES}",
    "user-dir alone": f"{PARSE}assert 'visual_grounding' not in sys.modules\n{USER_DIR_TOO}{PARSES}",
    "user-dir, plugin": f"{PARSE}{USER_DIR_TOO}import visual_grounding\n{PARSES}{USER_DIR_TOO}",
    "tasks": f"import visual_grounding.tasks\n{PARSES}{USER_DIR_TOO}",
    "models": f"import visual_grounding.models\n{PARSES}",
    "criterions": f"import visual_grounding.criterions\n{PARSES}",
    "a file of data": f"import visual_grounding.data.visual_context\n{PARSES}",
}

SPAWNED = """
import multiprocessing, sys
import visual_grounding
from visual_grounding.images.files import ImageFiles

def names(images=None):
    before = "fairseq" in sys.modules
    from fairseq.tasks import TASK_REGISTRY
    return before, "grounded_translation" in TASK_REGISTRY

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(names, (ImageFiles([], []),)), "fairseq" in sys.modules)
"""


def run_script(script: str, *arguments: object, user_dir: str = "") -> subprocess.CompletedProcess[str]:
    script = f"USER_DIR = {user_dir!r}\n{script}"
    return subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True)


def test_no_room_imports_fairseq_but_those_that_train_or_run_models() -> None:
    done = run_script(IMPORT_ALL)
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    assert int(done.stdout) > 100


@pytest.mark.parametrize("order", ORDERS)
def test_names_are_registered_and_user_dir_works(order: str, user_dir: str) -> None:
    done = run_script(ORDERS[order], user_dir=user_dir)
    assert done.returncode == 0, done.stderr


def test_names_are_registered_in_a_spawned_process(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SPAWNED)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True)
    assert done.stdout == "(False, True) False\n", done.stderr


def test_verbs_work_where_fairseq_is_not_installed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    keys = [f"{number}.png" for number in range(4)]
    for key in keys:
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(tmp_path / "photos" / key)
    np.save(tmp_path / "arrays.npy", rng.normal(size=(4, 6)).astype(np.float32))
    (tmp_path / "keys").write_text("".join(f"{key}\n" for key in keys))
    (tmp_path / "captions.tsv").write_text("".join(f"{key}\ta dog number {key}\n" for key in keys))
    (tmp_path / "text").write_text("a dog\na cat\n\ntwo dogs\n")
    make_retriever(tmp_path / "retriever")
    write_store(tmp_path / "features", rng.normal(size=(4, 1, 6)), keys)
    store = "--image-features features"
    lines = [
        "extract --images photos --backbone scattering --device cpu --out store",
        "import --arrays arrays.npy --keys keys --out imported",
        f"index --retriever retriever {store} --device cpu --out index",
        "retrieve --method dense --retriever retriever --index index --text text --device cpu --out dense",
        f"retrieve --method keyword --captions captions.tsv {store} --text text --out keyword",
        f"retrieve --method paired --keys keys {store} --text text --out paired",
        f"report --text text --image-ids paired {store} --images photos --out page",
        f"doctor --images photos {store} --text text --image-ids paired --retriever retriever --index index",
    ]
    script = f"""
    import os, sys
    sys.modules["fairseq"] = None
    from visual_grounding.cli.main import main
    os.chdir({str(tmp_path)!r})
    for line in {lines!r}:
        assert main(line.split()) == 0, line
    """
    done = run_script(textwrap.dedent(script))
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_of_fairseq_after_the_package_leaves_logging_and_the_import_system_alone() -> None:
    script = """
    import logging, sys
    import visual_grounding
    armed, root = len(sys.meta_path), logging.getLogger()
    before = root.level, list(root.handlers)
    import fairseq
    assert (root.level, root.handlers) == before
    assert len(sys.meta_path) == armed - 1 and type(fairseq.__spec__.loader).__name__ == "SourceFileLoader"
    """
    done = run_script(textwrap.dedent(script))
    assert (done.returncode, done.stderr) == (0, "")


def test_import_of_fairseq_that_fails_is_registered_when_it_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text("raise ImportError('not today')\n")
    script = f"""
    import sys
    import visual_grounding
    sys.path.insert(0, {str(tmp_path)!r})
    try:
        import fairseq
    except ImportError as error:
        assert str(error) == "not today", error
    sys.path.remove({str(tmp_path)!r})
    for name in [name for name in sys.modules if name.split(".")[0] == "fairseq"]:
        del sys.modules[name]
    import fairseq
    """
    done = run_script(textwrap.dedent(script) + PARSES)
    assert done.returncode == 0, done.stderr


def command_lines(folder: Path, user_dir: str) -> dict[str, list[object]]:
    """For each of fairseq's commands: flags that only work, or only fail as they should, where we are registered."""
    ours = ["--user-dir", user_dir, "--task", "grounded_translation"]
    missing = [folder / "bin", *ours, "--path", folder / "missing.pt", "--batch-size", 1, "--cpu"]
    images = ["--image-features", folder / "missing", "--image-ids", folder / "missing"]
    arch = ["--arch", "visual_aware_transformer_tiny", "--cpu"]
    yaml = f"""
    common: {{user_dir: {user_dir}, cpu: true}}
    task: {{_name: grounded_translation, data: {folder / "bin"}, image_features: missing, image_ids: missing}}
    model: {{_name: visual_aware_transformer}}
    criterion: {{_name: cross_entropy}}
    optimizer: {{_name: adam}}
    dataset: {{batch_size: 2}}
    """
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf/tiny.yaml").write_text(textwrap.dedent(yaml))
    return {
        "train": [folder / "bin", *ours, *images, *arch, "--batch-size", 2, "--save-dir", folder / "checkpoints"],
        "generate": missing,
        "validate": missing,
        "interactive": missing,
        "eval_lm": missing,
        "preprocess": [
            *ours, "-s", "en", "-t", "de", "--trainpref", folder / "text/train", "--destdir", folder / "made"
        ],
        "score": ["--sys", folder / "text/test.de", "--ref", folder / "text/test.de"],
        "hydra_train": ["--config-dir", folder / "conf", "--config-name", "tiny", f"hydra.run.dir={folder}/run"],
    }  # fmt: skip


ENDS = {  # exit status, and what is said on either stream
    "train": (2, "missing should hold a feature store, but there is no"),
    **dict.fromkeys(["generate", "validate", "interactive", "eval_lm"], (2, "missing.pt, but there is no such file.")),
    "preprocess": (0, "Wrote preprocessed data to"),
    "score": (0, "BLEU4 = 100.00"),
    "hydra_train": (1, "missing should hold a feature store, but there is no"),
}


@pytest.mark.parametrize(
    ("asked", "found"),
    [(None, "highest True"), ("float32", "highest True"), ("bfloat16", "medium"), ("half", "error: ")],
)
def test_the_environment_says_how_fairseqs_commands_multiply(asked: str | None, found: str) -> None:
    script = "import sys; sys.argv[0] = NAME; import visual_grounding, fairseq, torch\n"
    script += "fused = torch.backends.cuda.flash_sdp_enabled() or torch.cuda.is_available()\n"
    script += "print(torch.get_float32_matmul_precision(), fused)"
    said = {}
    for name in ("/bin/fairseq-train", "/bin/other"):
        environment = {**os.environ, **({} if asked is None else {"VISUAL_GROUNDING_MATMUL": asked})}
        words = [sys.executable, "-c", script.replace("NAME", repr(name))]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        said[name] = done.stdout.strip() if done.returncode == 0 else done.stderr.splitlines()[-1]
    assert said["/bin/other"] == "highest True"
    if found == "error: ":
        assert (
            said["/bin/fairseq-train"] == "error: VISUAL_GROUNDING_MATMUL should be float32 or bfloat16, but is half."
        )
    else:
        without = "medium True" if torch.cuda.is_available() else "medium False"
        assert said["/bin/fairseq-train"] == (without if asked == "bfloat16" else found)


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path, user_dir: str) -> None:
    words = [str(tmp_path), "--user-dir", user_dir, "--task", "voken_lm", "--arch", "voken_bert", "--vokens", "v" * 300]
    (tmp_path / "dict.txt").write_text("<mask> 1\n")
    words += ["--criterion", "voken_classification", "--optimizer", "adam", "--batch-size", "2", "--cpu"]
    done = run_command("fairseq-train", *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.stderr.splitlines()[-1].startswith("error: ") and "File name too long" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", ["console script", "module"])
def test_user_dir_works_in_all_of_fairseqs_commands(
    tiny_translation: Path, user_dir: str, tmp_path: Path, how: str
) -> None:
    for name in ("bin", "text"):
        (tmp_path / name).symlink_to(tiny_translation / name)
    lines = command_lines(tmp_path, user_dir)

    def run(name: str) -> subprocess.CompletedProcess[str]:
        if how == "module":
            return run_python(f"fairseq_cli.{name}", *lines[name], cwd=tmp_path)
        return run_command(f"fairseq-{name.replace('_', '-')}", *lines[name], cwd=tmp_path, fresh=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ended = dict(zip(lines, pool.map(run, lines)))
    for name, done in ended.items():
        status, said = ENDS[name]
        assert said in done.stdout + done.stderr, (name, done.stdout, done.stderr)
        assert done.returncode == status, (name, done.stderr)
        assert "tensorboardX" not in done.stdout + done.stderr  # it is there, so that no command asks for it
        if status == 2:
            assert done.stderr.splitlines()[-1].startswith("error: ") and "Traceback" not in done.stderr, done.stderr
    assert len(ended) == 8


def test_memory_that_is_not_there_is_said_in_one_line() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**60)
    said = _known_mistake(raised.value, None)
    assert said is not None and said.startswith("not enough memory (") and "\n" not in said
    assert said.endswith("Choose smaller sizes or batches.")
    assert _known_mistake(MemoryError(), None) == "not enough memory (MemoryError). Choose smaller sizes or batches."
    assert _known_mistake(RuntimeError("another"), None) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_a_gpu_that_is_asked_for_and_not_there_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((RuntimeError, AssertionError)) as raised:
        torch.cuda.get_device_capability(0)  # what fairseq asks first under --fp16
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "bin", "--fp16"])
    said = _known_mistake(raised.value, None)
    assert said is not None and said.startswith("--fp16 needs a GPU, but there is none (") and said.count(".") == 2
    assert said.endswith("). Leave it out, and add --cpu.")
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "bin", "--fp16", "--cpu"])
    said = _known_mistake(raised.value, None)
    assert said is not None and said.endswith("). Leave it out.")
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "bin"])
    said = _known_mistake(RuntimeError("No CUDA GPUs are available"), None)
    assert said == "a GPU was asked for, but there is none (No CUDA GPUs are available). Add --cpu."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Exception("Size of sample #1 is invalid (=(np.int32(5), np.int32(7))) since max_positions=(4, 1024), skip "
                   "this example with --skip-invalid-size-inputs-valid-test"),
         "sentence 2 has (5, 7) tokens (of source and target), more than the (4, 1024) that are possible. Shorten it;"),
        (Exception("Size of sample #0 is invalid (=300) since max_positions=63, skip this example with --skip"),
         "sentence 1 has 300 tokens, more than the 63 that are possible."),
        (OSError(28, "No space left on device"), None),
        (AssertionError("Sentences lengths should not exceed max_tokens=3"), "--max-tokens is 3, but a sentence has m"),
        (Exception("The dataset is empty. This could indicate that all elements"), "no sentence of a split is left: "),
        (FloatingPointError("gradients are Nan/Inf"), "training diverged: its loss or gradients became NaN"),
        (FloatingPointError("another"), None),
        (AssertionError("another"), None),
        (KeyError("bleu"), None),
        (FileNotFoundError(2, "No such file or directory", "nowhere"), None),
    ],
)  # fmt: skip
def test_what_fairseq_finds_wrong_is_said_in_one_line(
    error: Exception, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "bin"])
    found = _known_mistake(error, None)
    assert found is None if said is None else found is not None and found.startswith(said) and "\n" not in found


def test_what_fails_while_a_divergence_is_looked_into_is_its_consequence() -> None:
    with pytest.raises(RuntimeError) as raised:
        try:
            raise FloatingPointError("Minimum loss scale reached (0.0001). Your loss is probably exploding.")
        except FloatingPointError:
            raise RuntimeError("generator raised StopIteration")  # noqa: B904  # as fairseq does
    said = _known_mistake(raised.value, None)
    assert said is not None and said.startswith("training diverged: ") and "(Minimum loss scale reached" in said
    interrupted = torch.OutOfMemoryError("CUDA out of memory")
    interrupted.__context__ = raised.value
    assert _known_mistake(interrupted, None) is None


def test_a_key_that_fails_elsewhere_is_no_metric() -> None:
    def validate(depth: int) -> None:
        stats = {"loss": 1.0, "ppl": 2.0}
        if depth:
            {}["of a bug"]
        stats["blue"]

    def elsewhere() -> None:
        {}["of a bug"]

    def around(stats: dict[str, float]) -> None:
        elsewhere()

    around.__code__ = around.__code__.replace(co_name="validate")
    for run, said in ((lambda: validate(0), "--best-checkpoint-metric is blue, but what validation tells is lo"),
                      (lambda: around({}), None)):  # fmt: skip
        with pytest.raises(KeyError) as raised:
            run()
        found = _known_mistake(raised.value, raised.tb)
        assert found is None if said is None else found is not None and found.startswith(said)


TRAIN = ["--arch", "transformer_tiny", "--optimizer", "adam", "-s", "en", "-t", "de", "--max-epoch", 1]


@pytest.mark.slow
def test_mistakes_that_fairseq_finds_late_are_one_line(tiny_translation: Path, user_dir: str, tmp_path: Path) -> None:
    """The whole commands."""
    common = [tiny_translation / "bin", "--user-dir", user_dir, "--task", "grounded_translation", "--cpu"]

    def said(name: str, *flags: object, status: int = 2) -> str:
        done = run_command(f"fairseq-{name}", *common, *flags)
        assert done.returncode == status, done.stderr[-2000:]
        assert status == 0 or "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1] if status else ""

    train = ["train", *TRAIN, "--save-dir", tmp_path / "m", "--batch-size", 8]
    metric = "--best-checkpoint-metric"
    assert f"{metric} bleu needs --eval-bleu: without it validation tells loss" in said(*train, metric, "bleu")
    named = said(*train, metric, "blue")
    assert f"{metric} is blue, but what validation tells is loss, " in named and "ppl" in named
    assert "error: training diverged: its loss or" in said(*train, "--lr", 1e30, "--max-epoch", 30, "--no-save")
    assert "no sentence of a split is left" in said("train", *TRAIN, "--max-tokens", 3)
    assert "sentence 2 has (5, 5) tokens" in said("train", *TRAIN, "--batch-size", 8, "--max-source-positions", 4)
    shutil.rmtree(tmp_path / "m")
    said(*train, status=0)
    path = ["--path", tmp_path / "m/checkpoint_last.pt"]
    (tmp_path / "latin").write_bytes("ein Bär".encode("latin-1"))
    (tmp_path / "long").write_text("a " * 1500 + "\n")
    for name in ("generate", "interactive"):
        assert said(name) == "error: nothing says which model translates. Give --path CHECKPOINT."
    typed = ["interactive", *path, "--input"]
    place = tmp_path / "nowhere"
    assert said(*typed, place) == f"error: --input names {place}, which can't be used: No such file or directory."
    assert f"--input {tmp_path}/latin should be UTF-8, but isn't: 'utf-8' codec can't" in said(
        *typed, tmp_path / "latin"
    )
    assert "sentence 1 has (1501, 0) tokens (of source and target), more than" in said(*typed, tmp_path / "long")
    assert "--max-tokens is 3, but a sentence has more tokens" in said("generate", *path, "--max-tokens", 3)
