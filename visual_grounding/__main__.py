"""`python -m visual_grounding VERB`, for launchers such as torchrun."""

from .cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
