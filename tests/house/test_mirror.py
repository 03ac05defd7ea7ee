"""The tests mirror the package: whoever changes a file knows where its tests are, and a file without any is noticed."""

import ast
from pathlib import Path

import pytest
from conftest import REPOSITORY
from house.source import PACKAGE

TESTS = REPOSITORY / "tests"
# Files that are tested through what they serve, and where. A file that gets tests of its own leaves this list.
ELSEWHERE = {
    "__main__.py": "cli/test_main.py",
    "_interrupted.py": "cli/test_main.py",
    "_version.py": "cli/test_main.py",
    "analysis/overlay.py": "cli/test_report_heatmap.py",
    "analysis/text_over_image.py": "cli/test_report_heatmap.py",
    "cli/evaluate_perplexity.py": "end_to_end/test_grounded_lm.py",
    "cli/evaluate_predictions.py": "end_to_end/test_understanding.py",
    "cli/evaluation_table.py": "cli/test_evaluate.py",
    "cli/export.py": "retrieval/test_export.py",
    "cli/index.py": "cli/test_retrieval_verbs.py",
    "cli/probe.py": "cli/test_probe_entity_masking.py",
    "cli/probing.py": "cli/test_probe_entity_masking.py",
    "cli/prepare_captions.py": "cli/test_prepare.py",
    "cli/prepare_pieces.py": "cli/test_prepare.py",
    "cli/report.py": "analysis/test_report.py",
    "cli/scoring.py": "cli/test_evaluate.py",
    "cli/retrieve.py": "cli/test_retrieval_verbs.py",
    "cli/tables.py": "cli/test_stats.py",
    "cli/user_dir.py": "cli/test_main.py",
    "data/by_length.py": "data/test_labelled_examples.py",
    "data/complete_batches.py": "data/test_visual_batches.py",
    "criterions/grounded_sentence_prediction.py": "tasks/test_understanding.py",
    "criterions/grounded_tagging.py": "tasks/test_understanding.py",
    "data/image_tables.py": "data/test_visual_context.py",
    "data/text_of_one_language.py": "tasks/test_grounded_lm.py",
    "devices.py": "features/test_extraction.py",
    "diagnosis/disk.py": "diagnosis/test_artefacts.py",
    "diagnosis/environment.py": "cli/test_doctor.py",
    "diagnosis/findings.py": "diagnosis/test_artefacts.py",
    "errors.py": "cli/test_main.py",
    "fairseq_plugin.py": "test_registration.py",
    "features/array_files.py": "features/test_importers.py",
    "features/array_sources.py": "features/test_importers.py",
    "features/augmentation.py": "features/test_pixels.py",
    "features/backbones/backbone.py": "features/test_backbones.py",
    "features/backbones/dual_encoder_towers.py": "features/test_dual_encoder_towers.py",
    "features/backbones/preprocessing.py": "features/test_backbones.py",
    "features/backbones/timm_networks.py": "features/test_timm_networks.py",
    "features/backbones/torchvision_networks.py": "features/test_backbones.py",
    "features/backbones/weights.py": "features/test_backbones.py",
    "features/blocks.py": "features/test_importers.py",
    "features/box_lines.py": "features/test_region_table.py",
    "features/computation.py": "features/test_extractors.py",
    "features/extractor.py": "features/test_extractors.py",
    "features/image_network.py": "end_to_end/test_trained_image_network.py",
    "features/imports/encoded.py": "features/imports/test_region_tsv.py",
    "features/imports/field_names.py": "features/imports/test_image_files.py",
    "features/imports/records.py": "features/imports/test_image_files.py",
    "features/map_extractor.py": "features/test_extractors.py",
    "features/store_writer.py": "features/test_store.py",
    "images/decoding.py": "images/test_sources.py",
    "images/files.py": "images/test_sources.py",
    "images/keys.py": "images/test_sources.py",
    "images/parquet.py": "images/test_containers.py",
    "images/parquet_rows.py": "images/test_containers.py",
    "images/patterns.py": "images/test_containers.py",
    "images/several.py": "images/test_sources.py",
    "images/tars.py": "images/test_containers.py",
    "images/zips.py": "images/test_loader_workers.py",
    "models/gated_fusion_transformer.py": "models/test_post_encoder_fusion.py",
    "models/prediction.py": "models/test_visual_aware_bert.py",
    "models/presets.py": "models/test_text_only_transformer.py",
    "models/selective_attention_transformer.py": "models/test_post_encoder_fusion.py",
    "models/bert_choices.py": "models/test_vlp_bert.py",
    "models/vision_language_model.py": "models/test_vlp_bert.py",
    "models/visual_aware_transformer.py": "models/test_post_encoder_fusion.py",
    "models/voken_bert.py": "models/test_voken_lm.py",
    "models/voken_roberta.py": "models/test_voken_lm.py",
    "modules/standardisation.py": "modules/test_visual_attention.py",
    "probes/predictions.py": "end_to_end/test_understanding.py",
    "retrieval/caption_vectors.py": "retrieval/test_scene.py",
    "retrieval/looking_up.py": "retrieval/test_keyword.py",
    "retrieval/approximation.py": "retrieval/test_faiss_index.py",
    "retrieval/exclusion.py": "retrieval/test_dense.py",
    "retrieval/export_dual_encoder.py": "retrieval/test_dual_encoder.py",
    "retrieval/image_names.py": "data/test_interactive_images.py",
    "retrieval/joint_embedding.py": "retrieval/test_retriever.py",
    "retrieval/trained_towers.py": "retrieval/test_token_matcher.py",
    "storage/estimate.py": "features/test_dry_run.py",
    "storage/signature.py": "features/test_store.py",
    "tasks/grounded_sentence_prediction.py": "tasks/test_understanding.py",
    "tasks/grounded_tagging.py": "tasks/test_understanding.py",
    "text/captions.py": "faults/test_fuzzed_files.py",
    "text/piece_files.py": "cli/test_prepare.py",
    "text/pieces.py": "text/test_line_index.py",
    "vokenization/publishing.py": "vokenization/test_revokenization.py",
    "vokenization/text_shards.py": "vokenization/test_stream.py",
    "vokenization/check.py": "vokenization/test_stream.py",
    "vokenization/estimate.py": "vokenization/test_stream.py",
}


def files_of(package: Path) -> list[Path]:
    """Files that define something, by their path inside the package."""
    paths = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    return sorted(path.relative_to(package) for path in paths)


def mirrored(file: Path, tests: Path) -> bool:
    """Whether a file has its own test: features/store.py in features/test_store.py."""
    return (tests / file.parent / f"test_{file.stem.strip('_')}.py").is_file()


def without_tests(package: Path, tests: Path, elsewhere: dict[str, str]) -> list[str]:
    """Files with neither a test of their own nor one that is listed."""
    return [str(file) for file in files_of(package) if not mirrored(file, tests) and str(file) not in elsewhere]


def stale(package: Path, tests: Path, elsewhere: dict[str, str]) -> list[str]:
    """What is listed though it is gone, has a test of its own, or its test isn't there or has no test in it."""
    files = {str(file): file for file in files_of(package)}
    return [
        name
        for name, test in elsewhere.items()
        if name not in files or mirrored(files[name], tests) or not has_tests(tests / test)
    ]


def has_tests(path: Path) -> bool:
    """Whether a file defines tests."""
    if not path.is_file():
        return False
    parts = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(part, ast.FunctionDef) and part.name.startswith("test_") for part in parts)


def test_every_file_has_tests_of_its_own_or_is_listed() -> None:
    assert len(files_of(PACKAGE)) > 100
    assert without_tests(PACKAGE, TESTS, ELSEWHERE) == []


def test_the_list_is_up_to_date() -> None:
    assert stale(PACKAGE, TESTS, ELSEWHERE) == []


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, Path]:
    """A package of three files, one of them with tests of its own; one test is listed."""
    for name in ("package/room/__init__.py", "package/room/one.py", "package/room/two.py", "package/three.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tests/room").mkdir(parents=True)
    (tmp_path / "tests/room/test_one.py").write_text("def test_it():\n    pass\n")
    (tmp_path / "tests/empty.py").write_text("")
    return tmp_path / "package", tmp_path / "tests"


def test_a_file_without_tests_and_a_stale_list_are_found(world: tuple[Path, Path]) -> None:
    assert without_tests(*world, {}) == ["room/two.py", "three.py"]
    listed = {"room/two.py": "room/test_one.py", "three.py": "room/test_one.py"}
    assert without_tests(*world, listed) == stale(*world, listed) == []
    wrong = {
        "gone.py": "room/test_one.py",
        "room/one.py": "room/test_one.py",
        "three.py": "empty.py",
        "room/two.py": "no.py",
    }
    assert stale(*world, wrong) == list(wrong)
