"""Whole commands on the pretended device: from pictures to found images, as `--device cuda` runs them."""

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import options, tasks, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from pictures import drawn_photo
from small_dual_encoder import SENTENCES, make_dual_encoder
from small_retriever import make_retriever, make_sentences, make_store

from visual_grounding.cli.main import main

Chain = Callable[[Path, str], list[np.ndarray]]
CHAINS: dict[str, Chain] = {}


def chain(run: Chain) -> Chain:
    """Register a chain under its name."""
    CHAINS[run.__name__] = run
    return run


def command(*words: object) -> None:
    """`visual-grounding WORDS …` in this process."""
    status = main([str(word) for word in words])
    if status:
        raise RuntimeError(f"visual-grounding {words[0]} ended with status {status}")
