"""One candidate process as a judge uses it: model, calls, windows."""
