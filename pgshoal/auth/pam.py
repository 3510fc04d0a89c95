"""Asks PAM whether a password fits a user, and whether its account may be used; blocks, so belongs in a thread."""

from __future__ import annotations

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pgshoal.auth.outside import Answer

SERVICE: Final = b"pgbouncer"
#: A folder of service files in place of /etc/pam.d, for containers and tests.
FOLDER_VARIABLE: Final = "PGSHOAL_PAM_DIR"
_SUCCESS, _BUFFER_ERROR, _CONVERSATION_ERROR = 0, 5, 19
_PROMPT_ECHO_OFF, _ERROR_TEXT, _INFO_TEXT = 1, 3, 4
_REMOTE_HOST: Final = 4
_MESSAGES_MAX: Final = 32


class _Message(Structure):
    _fields_ = (("style", c_int), ("text", c_char_p))


class _Response(Structure):
    _fields_ = (("text", c_void_p), ("code", c_int))


_TALK = CFUNCTYPE(c_int, c_int, POINTER(POINTER(_Message)), POINTER(POINTER(_Response)), c_void_p)


class _Conversation(Structure):
    _fields_ = (("talk", _TALK), ("data", c_void_p))


@dataclass(frozen=True, slots=True)
class _Libraries:
    pam: Any
    c: Any


def is_available() -> bool:
    """Whether the system has PAM."""
    try:
        _libraries()
    except OSError:
        return False
    return True


@cache
def _libraries() -> _Libraries:
    pam, c = ctypes.CDLL("libpam.so.0"), ctypes.CDLL(None)
    pam.pam_strerror.restype = c_char_p
    pam.pam_strerror.argtypes = (c_void_p, c_int)
    pam.pam_set_item.argtypes = (c_void_p, c_int, c_char_p)
    for name in ("pam_authenticate", "pam_acct_mgmt", "pam_end"):
        getattr(pam, name).argtypes = (c_void_p, c_int)
    c.calloc.restype = c.strdup.restype = c_void_p
    c.calloc.argtypes = (c_size_t, c_size_t)
    c.strdup.argtypes = (c_char_p,)
    return _Libraries(pam, c)


def authenticate(user: str, password: bytes, host: str) -> Answer:
    """Ask the service `pgbouncer`; `host` is where the client is. Never raises."""
    name = user.encode(errors="surrogateescape")
    if not password or b"\0" in password or b"\0" in name:
        return Answer(False, "empty password")
    try:
        libraries = _libraries()
    except OSError:
        return Answer(False, "this system has no libpam.so.0")
    talk = _TALK(lambda count, messages, responses, data: _answer(libraries.c, password, count, messages, responses))
    conversation = _Conversation(talk, None)
    handle = c_void_p()
    pam = libraries.pam
    code = _start(pam, name, conversation, handle)
    if code != _SUCCESS:
        return Answer(False, f"PAM could not be started: error {code}")
    step = "pam_set_item"
    try:
        code = pam.pam_set_item(handle, _REMOTE_HOST, host.encode())
        if code == _SUCCESS:
            step, code = "pam_authenticate", pam.pam_authenticate(handle, 0)
        if code == _SUCCESS:
            step, code = "pam_acct_mgmt", pam.pam_acct_mgmt(handle, 0)
        if code == _SUCCESS:
            return Answer(True)
        text = (pam.pam_strerror(handle, code) or b"").decode(errors="replace")
        return Answer(False, f"{step} failed for user {user}: {text}")
    finally:
        pam.pam_end(handle, code)


def _start(pam: Any, user: bytes, conversation: _Conversation, handle: c_void_p) -> int:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return int(pam.pam_start(SERVICE, user, ctypes.byref(conversation), ctypes.byref(handle)))
    if not hasattr(pam, "pam_start_confdir"):
        return _CONVERSATION_ERROR
    path = folder.encode()
    return int(pam.pam_start_confdir(SERVICE, user, ctypes.byref(conversation), path, ctypes.byref(handle)))


def _answer(c: Any, password: bytes, count: int, messages: Any, responses: Any) -> int:
    """The one prompt without echo gets the password; a prompt with echo asks for something we do not know."""
    if not 1 <= count <= _MESSAGES_MAX:
        return _CONVERSATION_ERROR
    styles = [messages[at].contents.style for at in range(count)]
    if any(style not in (_PROMPT_ECHO_OFF, _ERROR_TEXT, _INFO_TEXT) for style in styles):
        return _CONVERSATION_ERROR
    # PAM frees these with the C library's free, so they must come from its heap.
    block = c.calloc(count, ctypes.sizeof(_Response))
    if not block:
        return _BUFFER_ERROR
    array = ctypes.cast(block, POINTER(_Response))
    for at, style in enumerate(styles):
        if style == _PROMPT_ECHO_OFF:
            array[at].text = c.strdup(password)
    responses[0] = array
    return _SUCCESS
