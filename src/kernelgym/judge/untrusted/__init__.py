"""All code that shares a process with a candidate, and no other code.

The zygote loads these files by path; they import nothing from kernelgym.
"""
