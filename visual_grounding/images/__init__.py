"""Pictures wherever they lie: a folder, a list, a tar, a zip, a webdataset, parquet; and from their bytes to pixels.

Everything here reads picture `row` of a collection, in any order and in any process: shards, ranks and a batch's own
pictures need that. So the libraries that were tried don't serve: `webdataset` streams, `datasets` copies what it reads
into a cache of its own, and `pyarrow.dataset.take` took 190 to 590 ms a picture, where a row group's own reader takes
1 to 3.
"""
