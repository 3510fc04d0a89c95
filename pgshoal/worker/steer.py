"""Tells the kernel which of the sockets that share a TCP port gets the next connections, or leaves it to its hash."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

_SO_ATTACH_REUSEPORT_CBPF: Final = 51
#: One instruction of classic BPF (linux/filter.h): code, jumps if true and if false, operand.
_INSTRUCTION: Final = struct.Struct("=HBBI")
#: sock_fprog: how many instructions, and where.
_PROGRAM: Final = struct.Struct("@HP")
_RETURN: Final = 0x06
#: No socket has this place among its kin: the kernel then takes its own choice.
NOBODY: Final = 0xFFFF


def steer(sock: socket.socket, place: int) -> None:
    """The socket at this place, counted in the order of `listen`, gets them; any socket of the port serves to say so.

    OSError where the socket shares no port, or the kernel knows no such thing.
    """
    code = ctypes.create_string_buffer(_INSTRUCTION.pack(_RETURN, 0, 0, place))
    program = _PROGRAM.pack(1, ctypes.addressof(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, program)


def release(sock: socket.socket) -> None:
    """Let the kernel choose."""
    steer(sock, NOBODY)
