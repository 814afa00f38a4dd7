#!/usr/bin/env bash
#SBATCH --job-name=tarkit-$command
#SBATCH --array=0-$last
$cpus#SBATCH --requeue
# $about.
# sbatch FILE starts all, sbatch --array=K FILE starts part K again: it does what is left of it.
# sbatch --array=0-$last%16 FILE runs 16 at a time. For another number of parts, emit another script.
#
# Yours: options of the cluster above (#SBATCH --partition, --time, --mem), and here its PATH.

cd -- $directory || exit
exec tarkit $command $own \
    $words
