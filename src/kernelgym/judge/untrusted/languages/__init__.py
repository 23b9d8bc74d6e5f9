"""Languages' own modules beside a kernel: one file for each language that needs one.

The zygote of a language loads the file that `Language.half` names, by path, and nothing else of
kernelgym; `plain.py` where it names none. Such a module defines these functions:

- ``import_packages()``: import the language's packages, in the zygote, before any fork. It may
  neither touch a GPU nor leave threads running that a kernel needs: a fork has none of them.
- ``count_launches(launches)``: wrap what launches a kernel, so that `watch/launches.py` counts it
  and a watcher can make the launch itself, or leave it out. Called once, in the zygote.
- ``environment(scratch)``: return environment variables for a kernel's process, given the only
  folder that it may write to.
- ``begin(request, target)``: in the kernel's process, before its module is loaded, replace what
  starts programs by ``request``, which sends ``{"program": NAME}`` with further fields to
  `kernelgym.judge.compiling.programs` and blocks for the answer. For a ``target``, a GPU that is
  not there such as ``cuda:90a``, have launches compile and launch nothing. Return a function that
  tells how many kernels were compiled like that.
- ``describe_error(error, source_file)``: return fields of an error's description that the language
  knows better: ``text``, ``where``, and ``compile`` as True if a compiler refused the kernel.

Code in the same process can undo all of this, so it serves honest and lazy kernels and is no
security boundary.
"""
