"""Reads the `options` startup parameter, which carries settings as command-line switches."""

from typing import Final

from pgshoal.wire.errors import WireError

UNSUPPORTED: Final = "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"
EMPTY_NAME: Final = "unsupported startup parameter in options: "


def parse_options(text: str) -> list[tuple[str, str]]:
    """The settings in `-c name=value`, `-cname=value` and `--name=value` form, in order.

    Raises WireError with the text for the client on anything else, an empty name included.
    """
    settings: list[tuple[str, str]] = []
    words = iter(_split(text))
    for word in words:
        if word == "-c":
            setting = next(words, "")
        elif word.startswith(("-c", "--")):
            setting = word[2:]
        else:
            raise WireError(UNSUPPORTED)
        name, equals, value = setting.partition("=")
        if not equals or name[:1].isspace():
            raise WireError(UNSUPPORTED)
        if not name:
            raise WireError(EMPTY_NAME)
        # PostgreSQL reads search-path as search_path.
        settings.append((name.replace("-", "_"), value))
    return settings


def _split(text: str) -> list[str]:
    """Words between spaces; a backslash takes the next character as it is, so a value may hold spaces."""
    if "\\" not in text:
        return [word for word in text.split(" ") if word]
    words: list[str] = []
    word: list[str] = []
    started = False
    characters = iter(text)
    for character in characters:
        if character == " ":
            if started:
                words.append("".join(word))
                word.clear()
                started = False
            continue
        started = True
        word.append(next(characters, "") if character == "\\" else character)
    if started:
        words.append("".join(word))
    return words
