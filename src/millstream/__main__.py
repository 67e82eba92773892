"""`python -m millstream`: the same as the `millstream` command."""

from millstream.cli.garbage import look_seldom

if __name__ == "__main__":
    look_seldom()
    # Only now, because to import the commands is the larger part of a start.
    from millstream.cli.main import run

    run()
