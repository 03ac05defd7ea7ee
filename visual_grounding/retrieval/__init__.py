"""From text to image ids: retrievers, indexes, search. Needs torch, not fairseq."""
