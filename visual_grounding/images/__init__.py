"""Pictures wherever they lie: a folder, a list, a tar, a zip, a webdataset, parquet; and from their bytes to pixels."""
