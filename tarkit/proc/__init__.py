"""Samples through a command, a Python function or a long-lived program: in parallel, in order, with failure policies.

A step (`step.SampleWork`) says what is done: `shell.RunCommand`, `function.CallFunction` or `program.RunProgram`, which
makes the pool. The path of one sample:

    samples                 TarSample, from a reader
      | run.number_jobs     numbers it and keeps its bytes readable from any thread
    job.Job
      | pool.Pool           one queue of batches, and N workers, each in a thread of its own:
      |     shell.CommandWorker      writes the fields to files (`workdir`), runs the command, collects the files
      |     function.FunctionWorker  sends the sample to a process, in which `child` calls the function (`calls`)
      |     function.LocalWorker     calls the function in this process
      |     program.ProgramWorker    long-lived programs that read and write tar streams
    job.Outcome             new samples (`result`: unchanged entries keep their headers) or a Failure
      | run.SampleRun       hands on logs, decides about failures, checks new keys
    samples                 for the output
"""
