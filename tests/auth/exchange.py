"""Plays whole SCRAM exchanges between our two roles."""

from pgshoal.auth.scram import ScramClient, ScramServer


def play(client: ScramClient, server: ScramServer) -> None:
    """Runs both sides to the end; AuthFailed comes from whichever side refuses."""
    answer = client.feed(server.feed(client.start()))
    if answer is None:
        work = client.needs_work()
        assert work is not None
        answer = client.resume(work())
    client.feed(server.feed(answer))
