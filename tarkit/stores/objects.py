"""Objects in buckets: s3:// (Amazon S3 and servers that speak its protocol), gs:// (Google), az:// (Azure), by obstore.

Credentials come from where obstore finds them: environment variables, the machine's own role, and for S3 also from the
profiles in ~/.aws, as of the AWS tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any, NoReturn

from tarkit.errors import MissingLibrary, TarkitError, Unsupported, spell
from tarkit.stores.buckets import first_line, login_hint, open_bucket, settings, split_named, split_url
from tarkit.stores.schemes import public_name, scheme_of
from tarkit.stores.store import (
    PASSING,
    Info,
    StoreOptions,
    TryAgain,
    denied_error,
    exists_error,
    not_found_error,
    unquote_etag,
)
from tarkit.stores.transfer import call_interruptibly

try:
    import obstore
    from obstore.exceptions import (
        AlreadyExistsError,
        GenericError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )
except ImportError:
    raise MissingLibrary("reading and writing s3://, gs:// and az://", "obstore", "s3") from None

__all__ = ["ObjectReply", "ObjectStore", "ObjectUpload", "open_store", "settings"]

PART = 16 << 20
"""Bytes of a part of an upload, so that 10 000 parts, the limit of S3, are 160 GB."""

PARTS = 4
"""Parts of one upload that are sent at a time."""

_CHUNK = 1 << 20  # bytes of a reply that are handed over at a time
_BEYOND = "Wanted range starting at"  # what obstore says of an object that ends before
_WHOLE = "Received non-partial response"  # what obstore says of a server that ignores ranges, or does not mark them
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_ROLE = re.compile(r"token request|https?://(169\.254\.|metadata\.google)")  # a request for those of the machine's role
_SERVER = re.compile(r"https?://(?:[^/\s@]*@)?([^/\s@,]+)")
_FATAL = (
    (re.compile(r"certificate|invalid peer|TlsError|HandshakeFailure", re.IGNORECASE), "TLS error"),
    (re.compile(r"builder error|relative URL|InvalidUri"), "the endpoint is not a valid URL"),
)
_NETWORK = (
    (re.compile(r"dns error|failed to lookup", re.IGNORECASE), "the name of the host cannot be resolved"),
    (re.compile(r"Connection refused", re.IGNORECASE), "connection refused"),
    (re.compile(r"TimedOut|timed out|timeout", re.IGNORECASE), "no byte came within the time-out"),
    (
        re.compile(r"IncompleteBody|IncompleteMessage|end of file|unexpected EOF", re.IGNORECASE),
        "the reply ended early",
    ),
    (re.compile(r"ConnectionReset|reset by peer", re.IGNORECASE), "the connection was reset"),
    (re.compile(r"invalid list response"), "the server sends something else than a list of objects"),
)


_DEFAULTS = StoreOptions()
_UNKNOWN = (-1, None)  # the version of an object of which the server does not say whether it is there
_NAMED = ("the name of the host cannot be resolved", "connection refused", "no byte came within the time-out")


class ObjectStore:
    """Objects of s3, gs and az."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options

    def head(self, url: str) -> Info:
        """Return the description of an object."""
        store, key = self._bucket_of(url)
        try:
            return _info(url, obstore.head(store, key))
        except BaseException as error:
            _raise_for(url, error, self.options)

    def get(self, url: str, start: int, stop: int | None) -> ObjectReply:
        """Request bytes [start, stop) of an object."""
        store, key = self._bucket_of(url)
        wanted: Any = {}
        if stop is not None:
            wanted["range"] = (start, stop)
        elif start:
            wanted["range"] = {"offset": start}
        try:
            return ObjectReply(url, obstore.get(store, key, options=wanted), start)
        except BaseException as error:
            if _WHOLE in str(error):
                if start:
                    what = f"{public_name(url)}: the server does not send parts of this object"
                    raise Unsupported(what) from error
                body = self.get(url, 0, None)
                body.info = body.info._replace(ranges=False)
                return body
            if 416 in _statuses(str(error)) or _BEYOND in str(error):
                info = self.head(url)
                if info.size is not None and info.size <= start:
                    return ObjectReply(url, None, start, info)
            _raise_for(url, error, self.options)

    def put(self, url: str, fresh: bool) -> ObjectUpload:
        """Begin to write an object."""
        return ObjectUpload(url, self.options, fresh)

    def delete(self, url: str) -> None:
        """Remove an object."""
        store, key = self._bucket_of(url)
        try:
            obstore.delete(store, key)
        except BaseException as error:
            _raise_for(url, error, self.options)

    def list(self, url: str, after: str | None = None, depth: int | None = None) -> Iterator[Info]:
        """Yield the objects whose URL begins with `url`, in the order of their names as bytes, those behind `after`.

        All depths are listed. obstore takes any XML as the last page of a list, such as an error or a page without the
        token of the next one. So a list is complete when another one, from its last name on, has that and no other;
        an empty one, when it is empty twice.
        """
        scheme, bucket, prefix = split_url(url)
        store = open_bucket(scheme, bucket, self.options)
        directory = prefix.rpartition("/")[0] or None
        last = "" if after is None else split_url(after)[2]
        # obstore lists directories only; the names before the prefix are skipped, and the rest after it is not read
        offset = _before(prefix) if last or len(prefix) > len(directory or "") + 1 else None
        try:
            for lists in count(1):
                behind, present = last, not last
                for meta in _listed(store, directory, offset if not behind else _before(behind)):
                    name = meta["path"]
                    present = present or name == behind
                    if name <= behind:
                        continue
                    last = max(last, name)
                    if name.startswith(prefix):
                        etag = unquote_etag(meta.get("e_tag"))  # a time is not as precise as in a reply
                        yield _info(f"{scheme}://{bucket}/{name}", meta)._replace(version=etag)
                    elif name > prefix:
                        return
                if not present:
                    missing = public_name(f"{scheme}://{bucket}/{behind}")
                    raise TryAgain(f"the server leaves {missing} out of a list that has to have it")
                if (last == behind and lists > 1) or scheme == "az":  # there, obstore refuses what is not a list
                    return
        except BaseException as error:
            _raise_for(url, error, self.options)

    def _bucket_of(self, url: str) -> tuple[Any, str]:
        scheme, bucket, key = split_named(url)
        return open_bucket(scheme, bucket, self.options), key


class ObjectReply:
    """The bytes of one reply."""

    def __init__(self, url: str, reply: Any, start: int, info: Info | None = None) -> None:
        self._url = url
        self._pieces: Iterator[Any] = iter(())
        self._rest = memoryview(b"")
        self._left = 0
        if reply is not None:
            self._pieces = iter(reply.stream(min_chunk_size=_CHUNK))
            first, last = reply.range
            if first != start:
                raise TarkitError(f"{public_name(url)}: the server sent another range than requested: from {first} on")
            self._left = last - first
            info = _info(url, reply.meta)
        assert info is not None
        self.info = info

    def read(self, n: int) -> bytes:
        """Return up to `n` bytes, b"" at the end; raises TryAgain."""
        if not self._rest:
            try:
                piece = next(self._pieces, None)
            except BaseException as error:
                _raise_for(self._url, error, begun=True)
            if piece is None:
                if self._left:
                    raise TryAgain(f"the reply ended {self._left} bytes early")
                return b""
            self._rest = memoryview(piece)
            self._left -= len(self._rest)
            if self._left < 0:
                raise TarkitError(f"{public_name(self._url)}: the server sends more bytes than it says")
        data, self._rest = bytes(self._rest[:n]), self._rest[n:]
        return data

    def close(self) -> None:
        """Give up what was not read. A `read` in another thread ends with its next piece, or the time-out."""
        self._pieces, self._rest = iter(()), memoryview(b"")


class ObjectUpload:
    """An object that is being written: in one request if it is small, else in parts, several at a time.

    Args:
        url: its URL.
        options: those of its requests.
        fresh: one that exists when it is completed is an error; for an object in parts, `RemoteUpload` looks for one.
    """

    def __init__(self, url: str, options: StoreOptions, fresh: bool) -> None:
        scheme, bucket, self._key = split_named(url)
        self._store = open_bucket(scheme, bucket, options, options.retries)
        self._once = open_bucket(scheme, bucket, options)  # for requests that are not repeated
        self._url = url
        self._options = options
        self._fresh = fresh
        self._small: list[bytes] | None = []
        self._size = 0
        self._writer: Any = None

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self._size += len(data)
        try:
            if self._small is not None:
                self._small.append(bytes(data))
                if self._size < PART:
                    return
                self._writer = obstore.open_writer(self._store, self._key, buffer_size=PART, max_concurrency=PARTS)
                data, self._small = b"".join(self._small), None
            self._writer.write(bytes(data))
        except BaseException as error:
            _raise_for(self._url, error, self._options)

    def close(self) -> None:
        """Complete the object; raise TarkitError unless the server has all of it then."""
        try:
            if self._small is not None:  # in a thread, so that a signal ends it: the object is there, or it is not
                call_interruptibly(partial(self._put, b"".join(self._small)))
            else:
                self._complete()
            call_interruptibly(self._compare)
        except BaseException as error:
            _raise_for(self._url, error, self._options)

    def _put(self, data: bytes) -> None:
        """Write a small object. It exists as well if the reply to an earlier request that wrote it was lost."""
        mode: Any = "create" if self._fresh else "overwrite"
        try:
            obstore.put(self._store, self._key, data, mode=mode)
        except (AlreadyExistsError, PreconditionError, GenericError):
            if not self._has(data):
                raise

    def _complete(self) -> None:
        """Complete an object in parts. The server may have done so, and its reply was lost."""
        before = None if self._fresh else self._version()
        try:
            self._writer.close()
        except (FileNotFoundError, GenericError):
            after = self._version()
            if _UNKNOWN in (before, after) or after in (before, None) or after[0] != self._size:
                raise

    def _has(self, data: bytes) -> bool:
        """Return whether the object has these bytes, as far as the server says."""
        try:
            reply = obstore.get(self._once, self._key)
            return reply.meta["size"] == len(data) and bytes(reply.bytes()) == data
        except Exception:  # that of the request before is reported
            return False

    def _version(self) -> tuple[int, str | None] | None:
        """Return the length and the ETag of the object that is there, None for none; _UNKNOWN if nobody says."""
        try:
            meta = obstore.head(self._once, self._key)
        except FileNotFoundError:
            return None
        except Exception:
            return _UNKNOWN
        return meta["size"], meta["e_tag"]

    def _compare(self) -> None:
        """Raise TarkitError if the server does not have an object of this length."""
        name = public_name(self._url)
        try:
            size = obstore.head(self._store, self._key)["size"]
        except FileNotFoundError as error:
            raise TarkitError(f"{name}: the server has not stored this object, although it said so") from error
        except (PermissionDeniedError, UnauthenticatedError):  # of who may write, but not read
            return
        if size != self._size:
            raise TarkitError(f"{name}: the server has {size} bytes of this object, {self._size} were sent")

    def abort(self) -> None:
        """Abort the upload of parts, so that none stays in the bucket."""
        writer, self._writer, self._small = self._writer, None, None
        if writer is not None:
            gone = TarkitError("given up")
            try:
                writer.__exit__(TarkitError, gone, None)
            except Exception:  # the reason for the abort is the error that is reported
                pass


def open_store(options: StoreOptions) -> ObjectStore:
    """Return the store of s3, gs and az."""
    return ObjectStore(options)


def _listed(store: Any, directory: str | None, offset: str | None) -> Iterator[Any]:
    """Yield the descriptions of the objects in a directory whose names are behind `offset`, if the server heeds it."""
    for page in obstore.list(store, prefix=directory, offset=offset):
        yield from page


def _before(name: str) -> str | None:
    """Return a name that is before `name`, with few that objects have between them; None if there is none."""
    last = chr(ord(name[-1]) - 1)
    return f"{name[:-1]}{last}~" if last.isascii() and last.isalnum() else name[:-1].rstrip("./") or None


def _info(url: str, meta: Any) -> Info:
    written = meta.get("last_modified")
    version = unquote_etag(meta.get("e_tag")) or str(written or "") or None
    return Info(url, meta["size"], version, modified=int(written.timestamp()) * 10**9 if written else None)


def _raise_if_final(url: str, error: BaseException, said: str, statuses: list[int], options: StoreOptions) -> None:
    """Raise the exception for an error that no repetition changes, if it is one of the known ones."""
    name, scheme = public_name(url), scheme_of(url) or ""
    if said.startswith(("NoSuchBucket", "ContainerNotFound")):
        kind = "container" if scheme == "az" else "bucket"
        raise TarkitError(f"{scheme}://{split_url(url)[1]}: there is no such {kind}") from error
    if said.startswith("NoSuchUpload"):
        raise TarkitError(f"{name}: the server has not got this upload any more; the object was not written") from error
    if isinstance(error, FileNotFoundError):
        raise not_found_error(name) from error
    if isinstance(error, AlreadyExistsError):
        raise exists_error(name) from error
    if isinstance(error, PreconditionError):
        raise TarkitError(f"{name}: the object has changed meanwhile") from error
    if (refusal := _denied_error(url, error, said, statuses, options)) is not None:
        raise refusal from error
    for pattern, words in _FATAL:
        if pattern.search(str(error)):
            raise TarkitError(f"{name}: {words}", f"{spell('endpoint_url')} names the server") from error
    if statuses and statuses[-1] not in PASSING:
        raise TarkitError(f"{name}: the server answers {statuses[-1]}{': ' if said else ''}{said}") from error


def _statuses(text: str) -> list[int]:
    """Return the statuses of replies that the text of an error names."""
    return [int(found) for found in _STATUS.findall(text)]


def _raise_for(url: str, error: BaseException, options: StoreOptions = _DEFAULTS, *, begun: bool = False) -> NoReturn:
    """Raise the exception for an error of obstore, whose text has the status, the reply and the cause.

    Args:
        url: the object.
        error: the error.
        options: those of the request.
        begun: the reply had begun.
    """
    panic = type(error).__name__ == "PanicException"  # of Rust: a BaseException that cannot be imported
    if isinstance(error, (TarkitError, TryAgain)) or not (panic or isinstance(error, Exception)):
        raise error
    name, text = public_name(url), str(error)
    if panic:
        raise TarkitError(f"{name}: the library failed: {first_line(error)}") from error
    statuses, code, message = _statuses(text), _CODE.search(text), _MESSAGE.search(text)
    words = message[1].strip().partition("\n")[0].rstrip(".") if message else ""
    said = ": ".join(filter(None, (code[1] if code else "", words)))
    _raise_if_final(url, error, said, statuses, options)
    if statuses:
        reason = f"the server answers {statuses[-1]}{': ' if said else ''}{said}"
    elif isinstance(error, GenericError) or begun:
        reason = next((words for pattern, words in _NETWORK if pattern.search(text)), first_line(error))
        server = _SERVER.search(text)
        if reason in _NAMED and server is not None:
            reason += f" ({server[1]})"
    else:
        raise TarkitError(f"{name}: {first_line(error)}") from error
    raise TryAgain(reason) from error  # in no variable here: that is a cycle, which keeps all that callers hold


def _denied_error(
    url: str, error: BaseException, said: str, statuses: list[int], options: StoreOptions
) -> TarkitError | None:
    """Return the exception for credentials that are missing or not accepted, None for another error."""
    name, scheme = public_name(url), scheme_of(url) or ""
    unsent = bool(_ROLE.search(str(error))) and not PASSING.intersection(statuses)
    login = login_hint(scheme, options, sent=not unsent)
    hint = f"{login}; {spell('anonymous')} reads a public bucket"
    if unsent:
        return TarkitError(f"{name}: no credentials: none are set, and this machine has no role", hint)
    refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or bool({401, 403} & set(statuses))
    if options.anonymous and (refused or 400 in statuses):  # a server may say nothing better without a signature
        what = f"no credentials were sent{': ' if said else ''}{said}"
        return denied_error(name, what, f"without {spell('anonymous')} they are sent: {login}")
    return denied_error(name, said or "the credentials that were sent do not allow it", hint) if refused else None
