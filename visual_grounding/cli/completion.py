"""Print a script that completes verbs and flags of this command at the tabulator, for bash, zsh or tcsh.

visual-grounding completion bash > ~/.local/share/bash-completion/completions/visual-grounding
visual-grounding completion zsh > ~/.zfunc/_visual-grounding        # a folder of $fpath
"""

import argparse

import shtab


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of this verb."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell that shall read it")


def run(args: argparse.Namespace) -> None:
    """Print the script."""
    print(shtab.complete(whole_parser(), args.shell))


def whole_parser() -> argparse.ArgumentParser:
    """Every verb with all its flags as one parser, the verbs of two words below their first."""
    from ..retrieval.finder import METHODS
    from .main import VERBS, parser_of

    whole = argparse.ArgumentParser(prog="visual-grounding")
    whole.add_argument("--version", action="version", version="")
    parsers, below = {"": whole}, {"": whole.add_subparsers()}
    for verb, what in VERBS.items():
        first, _, second = verb.rpartition(" ")
        if first not in below:
            below[first] = parsers[first].add_subparsers()
        # With one of its methods `retrieve` takes the flags of all, those of the others without help.
        flags = parser_of(verb, ["--method", "dense"] if verb == "retrieve" else [])
        for action in list(flags._actions):
            if not action.option_strings and any(other.startswith(f"{verb} ") for other in VERBS):
                flags._remove_action(action)  # verbs of two words stand there
            action.help = "" if action.help == argparse.SUPPRESS else action.help
            if action.dest == "method" and verb == "retrieve":
                action.choices = list(METHODS)
            # Behind a flag of several files the scripts would offer files for ever, and no flag any more.
            if action.nargs not in (0, "+", "*") and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        parsers[verb] = below[first].add_parser(second, parents=[flags], add_help=False, help=what.replace("%", "%%"))
    return whole
