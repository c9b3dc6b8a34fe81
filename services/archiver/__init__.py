"""archiver: a job's series as one file that lasts, beside the code that made them (X1 to X4)."""
