"""Work on samples with what is not ours: commands, Python functions, resident programs; in parallel and in order."""
