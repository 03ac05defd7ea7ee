"""The common nouns of a text, by a part-of-speech tagger, or as the words that are nouns somewhere else.

Taggers are pipelines of spaCy (https://spacy.io), which isn't installed along: the extra `nouns`, and a pipeline, such
as by `python -m spacy download en_core_web_sm`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ..errors import InputError, in_short
from ..storage.outside import check_file
from .words import split_words

NO_TAGGER = "none"


class Nouns(ABC):
    """What finds the common nouns of texts.

    Attributes:
        name: what it is called in a signature.
    """

    name: str

    @abstractmethod
    def of(self, texts: list[str]) -> list[list[str]]:
        """The nouns of each text in small letters, each once, in order of their first appearance."""


class TaggedNouns(Nouns):
    """Those that a pipeline of spaCy tags as NOUN; names (PROPN) are none.

    Args:
        pipeline: its name or folder.
        stop_words: words that are none, whatever they are tagged as.

    Raises:
        InputError: spaCy isn't installed, there is no such pipeline, or it doesn't tag.
    """

    def __init__(self, pipeline: str, stop_words: Collection[str] = ()) -> None:
        self.pipeline = pipeline
        self._stop_words = frozenset(stop_words)
        self._tagger = _load(pipeline)
        meta = self._tagger.meta
        self.name = f"{meta.get('lang')}_{meta.get('name')}-{meta.get('version')}"

    def __getstate__(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline, "stop_words": self._stop_words}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def of(self, texts: list[str]) -> list[list[str]]:
        """As `Nouns.of`.

        Raises:
            InputError: a text is longer than the tagger reads.
        """
        try:
            tagged = list(self._tagger.pipe(texts))
        except ValueError as error:
            raise InputError(f"tagger {self.pipeline} can't read this text: {in_short(error)}") from error
        nouns = ([token.text.lower() for token in text if token.pos_ == "NOUN" and token.is_alpha] for text in tagged)
        return [list(dict.fromkeys(noun for noun in found if noun not in self._stop_words)) for found in nouns]


class KnownNouns(Nouns):
    """Words that are among some nouns, or are plurals of them by English spelling: dogs, boxes, ladies.

    Without a tagger nothing tells whether a word is a noun where it stands (*a watch*, *they watch*).

    Args:
        known: nouns of a word each; others can't be found.
        stop_words: words that are none, whatever is known: *can*, where *tin can* has its synonym.
    """

    name = "collection"

    def __init__(self, known: Iterable[str], stop_words: Collection[str] = ()) -> None:
        self._stop_words = frozenset(stop_words)
        self._known = frozenset(word for noun in known if len(words := split_words(noun)) == 1 for word in words)

    def of(self, texts: list[str]) -> list[list[str]]:
        """As `Nouns.of`; plurals stand as they were written."""
        return [list(dict.fromkeys(word for word in split_words(text) if self._is_noun(word))) for text in texts]

    def _is_noun(self, word: str) -> bool:
        return word not in self._stop_words and not self._known.isdisjoint(singulars(word))


def singulars(word: str) -> list[str]:
    """What a word is the plural of, by its spelling, and the word itself.

    >>> singulars("ladies"), singulars("dogs")
    (['ladies', 'ladie', 'ladi', 'lady'], ['dogs', 'dog'])
    """
    found = [word]
    for ending, instead in (("s", ""), ("es", ""), ("ies", "y")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            found.append(word.removesuffix(ending) + instead)
    return found


def installed_tagger() -> str | None:
    """A pipeline of spaCy for English that is installed: the first by name; None where there is none, or no spaCy."""
    try:
        from spacy.util import get_installed_models
    except ImportError:
        return None
    return min((name for name in get_installed_models() if name.startswith("en_")), default=None)


def _load(pipeline: str) -> Any:
    try:
        import spacy
    except ImportError as error:
        raise InputError(
            f"tagger {pipeline!r} needs spaCy, but it isn't installed: pip install 'visual_grounding[nouns]'. A tagger "
            f"named {NO_TAGGER} is none.",
            "tagger",
        ) from error
    try:
        for path in Path(pipeline).rglob("*") if Path(pipeline).is_dir() else ():
            check_file(path)
        loaded = spacy.load(pipeline, exclude=["ner", "parser", "lemmatizer"])
    except Exception as error:  # a broken description or table fails in many ways
        raise InputError(
            f"tagger {pipeline!r} should be a pipeline of spaCy, installed by python -m spacy download NAME, or its "
            f"folder, but can't be loaded: {in_short(error)}",
            "tagger",
        ) from error
    if not {"tagger", "morphologizer", "attribute_ruler"} & set(loaded.pipe_names):
        raise InputError(f"tagger {pipeline!r} should tag parts of speech, but has only {loaded.pipe_names}.", "tagger")
    return loaded
