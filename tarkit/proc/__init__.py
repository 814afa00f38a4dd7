"""Samples through a command, a Python function or a long-lived program: in parallel, in order, with failure policies.

The path of one sample:

    samples                 TarSample, from a reader
      | run.number_jobs     numbers it and keeps its bytes readable from any thread
    Job
      | runner              one of
      |   engine.Engine         N threads, each with an executor that blocks until its jobs are done:
      |     shell.CommandExecutor     writes the fields to files (`workdir`), runs the command, collects the files
      |     function.FunctionExecutor sends the sample to a worker process (`function_process`, and `child` in it)
      |   direct.DirectRunner       calls a Python function in this process
      |   worker.WorkerPool         N long-lived programs that read and write tar streams (`session`)
    Job, Outcome            new samples (`result`: unchanged entries keep their headers) or a Failure
      | run.SampleRun       hands on logs, applies `policy` to failures, checks new keys
    samples                 for the output

`shell.command_runner`, `function.function_runner` and `worker.worker_runner` make runners from plain arguments;
`run.SampleRun` with one of them is called with jobs.
"""
