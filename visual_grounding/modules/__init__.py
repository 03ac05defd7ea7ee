"""The equations: one family a file, plain torch, no fairseq."""
