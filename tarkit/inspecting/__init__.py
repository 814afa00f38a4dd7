"""What is in samples and datasets: items of a sample, counts and sizes."""
