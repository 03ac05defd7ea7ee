"""fairseq datasets that carry images beside text."""
