"""What others published as features of regions, image by image: pickles, TSV, LMDB, HDF5.

`records.py` turns the arrays of one image, by their names, into a row of a store; each other file is one form. Nothing
that is read is run.
"""
