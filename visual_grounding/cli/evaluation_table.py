"""What `evaluate` prints: one row a score, one column a system, then the tests and the signatures."""

from typing import Any

from .scoring import aligned, small_p


def table_of(report: dict[str, Any], labels: dict[str, str]) -> list[str]:
    """Its lines.

    Args:
        report: what `scores.json` holds.
        labels: score -> its name for readers, in the order of the rows.
    """
    systems = {name: system for name, system in report["systems"].items() if system}
    rows = [["", *systems, *(["difference"] if "twin" in systems else [])]]
    for name, label in labels.items():
        cells = [_with_spread(system[name]) for system in systems.values()]
        if "twin" in systems and systems["twin"][name]:
            cells.append(f"{systems['hypothesis'][name]['mean'] - systems['twin'][name]['mean']:+.2f}")
        rows.append([label, *cells])
    sizes = [system["parameters"] for system in systems.values()]
    if any(sizes):
        rows.append(["parameters", *("not given" if size is None else f"{size:,}" for size in sizes)])
    for_images = [system["parameters_for_images"] for system in systems.values()]
    if any(for_images):
        rows.append(["of these for images", *("not given" if size is None else f"{size:,}" for size in for_images)])
    seeds = len(systems["hypothesis"]["files"])
    lines = [f"{report['sentences']} sentences ({report['target_lang']}), {seeds} seed{'s' * (seeds > 1)}", ""]
    lines += aligned(rows)
    not_computed = [f"{name}: not computed ({why})" for name, why in report["not_computed"].items()]
    lines += ["", *not_computed] if not_computed else []
    if report["comparison"]:
        lines += ["", f"{report['comparison']['test']}; {report['comparison']['samples']} resamplings"]
        for pair in report["comparison"]["pairs"]:
            lines += ["", f"{pair['hypothesis']} against {pair['twin']}"]
            pair_rows = [["", "difference", "95 % interval", "p_value"]]
            pair_rows += [_tested(label, pair[name]) for name, label in labels.items() if name in pair]
            lines += aligned(pair_rows)
    if report["comparison"] and report["comparison"]["over_seeds"]:
        lines += ["", f"all {seeds} seeds: {report['comparison']['over_seeds_test']}"]
        over_seeds = report["comparison"]["over_seeds"]
        all_rows = [["", "difference", "95 % interval", "p_value"]]
        lines += aligned(all_rows + [_tested(labels[name], test) for name, test in over_seeds.items()])
    lines += [
        "",
        *(f"{item['label']}: {item['signature']} ({item['text']})" for item in report["conventions"].values()),
    ]
    return lines


def _tested(label: str, test: dict[str, Any]) -> list[str]:
    interval = f"{test['low']:+.2f} … {test['high']:+.2f}"
    return [label, f"{test['delta']:+.2f}", interval, small_p(test["p_value"])]


def _with_spread(score: dict[str, Any] | None) -> str:
    if score is None:
        return "not computed"
    return f"{score['mean']:.2f}" + ("" if score["std"] is None else f" ± {score['std']:.2f}")
