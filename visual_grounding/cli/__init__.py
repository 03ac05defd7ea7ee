"""The `visual-grounding` command: one verb a file, each with `add_arguments(parser)` and `run(args)`."""
