"""The pages of a report: HTML and SVG that load nothing."""
