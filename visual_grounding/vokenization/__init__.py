"""Vokenization (VOK): an image for every token of a text, and what is made of them. Needs no fairseq."""
