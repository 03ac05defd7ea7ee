"""Artefacts on disk: directories of plain arrays with a `meta.json`, written in shards and published at once."""
