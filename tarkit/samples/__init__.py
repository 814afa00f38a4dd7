"""The convention: entries of one key are a sample; datasets of samples, chosen and renamed."""
