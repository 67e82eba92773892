"""`python -m millstream`: the same as the `millstream` command."""

from millstream.cli.gc_tuning import relax_gc

if __name__ == "__main__":
    relax_gc()
    # Only now, because to import the commands is the larger part of a start.
    from millstream.cli.main import run

    run()
