"""Samples through a command, a Python function or a long-lived program: in parallel, in order, with failure policies.

The path of one sample:

    samples                 TarSample, from a reader
      | run.number_jobs     numbers it and keeps its bytes readable from any thread
    job.Job
      | runner              `pool.Pool` with N workers, each in a thread of its own:
      |     shell.CommandWorker      writes the fields to files (`workdir`), runs the command, collects the files
      |     function.FunctionWorker  sends the sample to a process (`function_process`; `child` and `calls` in it)
      |     worker.ProgramWorker     long-lived programs that read and write tar streams (`session`)
      |                     or, for a Python function, a call in this process
    Job, Outcome            new samples (`result`: unchanged entries keep their headers) or a Failure
      | run.SampleRun       hands on logs, applies `policy` to failures, checks new keys
    samples                 for the output

`shell.command_runner`, `function.function_runner` and `worker.program_pool` make runners;
`run.SampleRun` with one of them is called with jobs.
"""
