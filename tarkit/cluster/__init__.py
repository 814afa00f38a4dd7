"""Sort and shuffle on many machines: passes over the data as tasks, which meet in files of a spill."""
