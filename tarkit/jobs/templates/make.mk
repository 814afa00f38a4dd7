# The jobs of tarkit $command, for GNU make.
# make -j 2 -f FILE does what is left; make -n -f FILE prints the command lines; make -k -f FILE goes on after failures.
SHELL := bash
EQUALS := =
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.PHONY: tarkit-jobs
tarkit-jobs:
