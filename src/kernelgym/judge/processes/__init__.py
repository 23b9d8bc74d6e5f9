"""The trusted side's handles on the zygote and its candidates."""
