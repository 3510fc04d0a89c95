"""Tests for pgshoal.wire.catalogue."""

from pgshoal.wire import build
from pgshoal.wire.catalogue import BACKEND, FRONTEND, Phase, backend, frontend


def test_type_bytes_are_unique_in_each_direction() -> None:
    """One type byte means one message, once the direction is known."""
    for table in (FRONTEND, BACKEND):
        assert len({spec.code for spec in table}) == len(table)
        assert len({spec.name for spec in table}) == len(table)


def test_same_byte_means_different_messages_by_direction() -> None:
    """D is Describe from a client and DataRow from a server."""
    described, row = frontend(ord("D")), backend(ord("D"))
    assert described is not None
    assert row is not None
    assert (described.name, row.name) == ("Describe", "DataRow")


def test_unknown_bytes_have_no_row() -> None:
    """A type byte outside the protocol is None, not an error."""
    assert frontend(ord("y")) is None
    assert backend(0) is None


def test_only_data_may_be_unbounded() -> None:
    """Messages without data of free size have an upper bound, and none can be shorter than its length field."""
    names = {spec.name for spec in FRONTEND if spec.unbounded}
    assert names == {"Bind", "CopyData", "FunctionCall", "Parse", "Query"}
    assert all(spec.min_length >= 4 for spec in FRONTEND + BACKEND)
    assert all(spec.max_length is None or spec.max_length >= spec.min_length for spec in FRONTEND + BACKEND)


def test_smallest_builds_fit_the_lower_bounds() -> None:
    """The smallest message we can build of each type is exactly the smallest the table allows."""
    for packet in (
        build.bind(b"", b""), build.close(b"S", b""), build.describe(b"P", b""), build.execute(b""),
        build.parse(b"", b""), build.query(""), build.SYNC, build.FLUSH, build.TERMINATE,
    ):  # fmt: skip
        spec = frontend(packet[0])
        assert spec is not None
        assert int.from_bytes(packet[1:5]) == spec.min_length, spec.name
    for packet in (
        build.AUTH_OK, build.READY_IDLE, build.data_row([]), build.row_description([]), build.command_complete(""),
        build.parameter_status("", ""), build.negotiate_protocol_version(3, 0), build.PARSE_COMPLETE, build.NO_DATA,
    ):  # fmt: skip
        spec = backend(packet[0])
        assert spec is not None
        assert int.from_bytes(packet[1:5]) == spec.min_length, spec.name


def test_login_messages_are_bounded() -> None:
    """Everything a client may send before it is logged in has an upper bound."""
    assert all(spec.max_length is not None for spec in FRONTEND if Phase.LOGIN in spec.phases)
