"""`python -m pgshoal.worker CHANNEL LEDGER BELL,...` is one worker; the supervisor starts it, nobody else."""

import sys

from pgshoal.worker.run import main

if __name__ == "__main__":
    channel, ledger, *bells = (int(fd) for argument in sys.argv[1:] for fd in argument.split(","))
    sys.exit(main(channel, ledger, bells))
