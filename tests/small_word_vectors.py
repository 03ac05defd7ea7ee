"""Files of a few word vectors, in every format that is read."""

from pathlib import Path

import numpy as np

Vectors = dict[str, list[float]]


def write_vectors(path: Path, vectors: Vectors, binary: bool = False) -> Path:
    """In word2vec's format: numbers as text, as fastText's `.vec`, or in four bytes each."""
    size = len(next(iter(vectors.values())))
    with open(path, "wb") as file:
        file.write(f"{len(vectors)} {size}\n".encode())
        for word, vector in vectors.items():
            numbers = np.array(vector, dtype=np.float32)
            said = numbers.tobytes() if binary else " ".join(map(str, vector)).encode()
            file.write(word.encode() + b" " + said + b"\n")
    return path


def write_fasttext(path: Path, sentences: list[list[str]], size: int = 6) -> Path:
    """A fastText model, trained a little."""
    from gensim.models import FastText
    from gensim.models.fasttext import save_facebook_model

    model = FastText(sentences=sentences, vector_size=size, min_count=1, epochs=1, bucket=50, workers=1, seed=1)
    save_facebook_model(model, str(path))
    return path
