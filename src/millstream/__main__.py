"""`python -m millstream`: the same as the `millstream` command."""

from millstream.cli.main import run

if __name__ == "__main__":
    run()
