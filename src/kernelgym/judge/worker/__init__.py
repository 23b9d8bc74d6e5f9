"""The trusted worker: takes jobs, judges each, answers verdicts."""
