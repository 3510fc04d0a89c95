"""`python -m pgshoal.bench`: the bench without the rest of the command line."""

from pgshoal.bench.commands import application

if __name__ == "__main__":
    application()(prog_name="pgshoal bench")
