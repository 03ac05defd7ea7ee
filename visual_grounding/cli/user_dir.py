"""Print the folder of the installed package, for `fairseq-train --user-dir "$(visual-grounding user-dir)"`."""

import argparse
from importlib.util import find_spec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags."""


def run(args: argparse.Namespace) -> None:
    """Print the very path that Python imports the package from: fairseq accepts no other once it is imported."""
    spec = find_spec(__package__.partition(".")[0])
    print(next(iter(spec.submodule_search_locations or [])) if spec else "")
