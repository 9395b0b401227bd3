"""Readers of public data sets: each turns files in the set's own format into ``bench.corpus`` values.

No data is shipped; every file is the user's own copy.
"""
