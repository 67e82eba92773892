"""Where the rows of a job go. A sink writes in the tasks and takes effect in the driver's commit, once per batch."""
