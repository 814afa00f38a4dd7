"""The convention: entries of one key are a sample; datasets of samples, chosen and renamed.

`sample.split_name` divides the name of an entry into key and field; `names` says which field a name of the user means.
"""
