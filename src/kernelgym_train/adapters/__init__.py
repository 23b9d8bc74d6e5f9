"""Episodes for other projects' trainers; one module a project."""
