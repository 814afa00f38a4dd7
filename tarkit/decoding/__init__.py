"""Decode the fields of samples to values for Python: by rules, pictures in a form and a size, clips of video."""
