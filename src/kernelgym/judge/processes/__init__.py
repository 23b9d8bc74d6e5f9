"""The trusted handles on zygote and candidates."""
