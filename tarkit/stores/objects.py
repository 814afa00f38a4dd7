"""Objects in buckets: s3:// (Amazon S3 and servers that speak its protocol), gs:// (Google), az:// (Azure), by obstore.

Credentials come from where obstore finds them: environment variables, the machine's own role, and for S3 also from the
profiles in ~/.aws, as of the AWS tools.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import Any
from uuid import uuid4

from tarkit.errors import MissingLibrary, TarkitError, Unsupported, Usage
from tarkit.sizes import plural
from tarkit.stores.bucket_errors import aborting, first_line, is_lost, raise_for, status_of
from tarkit.stores.buckets import open_bucket, server_of, split_named, split_url
from tarkit.stores.names import warn_of_names
from tarkit.stores.retry import endless_error
from tarkit.stores.schemes import public_name
from tarkit.stores.store import (
    PASSING,
    Denied,
    Info,
    PieceReply,
    Store,
    StoreOptions,
    TryAgain,
    Unconfirmed,
    Upload,
    unquote_etag,
)
from tarkit.threads import call_interruptibly

try:
    import obstore
    from obstore.exceptions import InvalidPathError, PreconditionError
except ImportError:
    raise MissingLibrary("reading and writing s3://, gs:// and az://", "obstore", "s3") from None

PART = 16 << 20
"""Bytes of a part of an upload, so that 10 000 parts, the limit of S3, are 160 GB."""

PARTS = 4
"""Parts of one upload that are sent at a time."""

_CHUNK = 1 << 20  # bytes of a reply that are handed over at a time
_MARK = "tarkitupload"  # the name of the metadata that has the mark of an upload; Azure takes letters alone
_BEYOND = "Wanted range starting at"  # message of obstore for an object that ends before
_WHOLE = "Received non-partial response"  # message of obstore for a server that ignores ranges, or does not mark them


class ObjectStore(Store):
    """Objects of s3, gs and az."""

    def head(self, url: str) -> Info:
        store, key = self._bucket_of(url)
        try:
            reply = obstore.get(store, key, options={"head": True})
            return _info(url, reply.meta)._replace(mark=reply.attributes.get(_MARK))
        except BaseException as error:
            raise_for(url, error, self.options)

    def get(self, url: str, start: int, stop: int | None) -> ObjectReply:
        store, key = self._bucket_of(url)
        wanted: Any = {}
        if stop is not None:
            wanted["range"] = (start, stop)
        elif start:
            wanted["range"] = {"offset": start}
        try:
            return ObjectReply(url, self.options, obstore.get(store, key, options=wanted), start)
        except BaseException as error:
            text = str(error)
            status = status_of(text)  # without one the words are those of obstore
            if status is None and _WHOLE in text:
                if start:
                    message = f"{public_name(url)}: the server does not send parts of this object"
                    raise Unsupported(message) from error
                body = self.get(url, 0, None)
                body.info = body.info._replace(ranges=False)
                return body
            if status == 416 or (status is None and _BEYOND in text):
                info = self.head(url)
                if info.size is not None and info.size <= start:
                    return ObjectReply(url, self.options, None, start, info)
            raise_for(url, error, self.options)

    def put(self, url: str, fresh: bool) -> ObjectUpload:
        return ObjectUpload(url, self.options, fresh)

    def delete(self, url: str) -> None:
        store, key = self._bucket_of(url)
        try:
            obstore.delete(store, key)
        except BaseException as error:
            raise_for(url, error, self.options)

    def list(self, url: str, depth: int | None = None) -> Iterator[Info]:
        """Yield the objects whose URL begins with `url`, in the order of their names as bytes; of all depths.

        For s3 and gs obstore takes a page that is no list, such as a form to log in, for the last one. So what follows
        the last name is requested again.
        """
        scheme, bucket, prefix = split_url(url)
        last, refuses = "", False
        try:
            for name, info in self._listed(url):
                last = name
                yield info
            if scheme == "gs":
                yield from self._list_again(url, last)
        except InvalidPathError as error:  # of a name that obstore refuses, in place of the page
            if scheme != "s3":
                message = f"{public_name(url)}: the library cannot name an object in this list: {first_line(error)}"
                raise TarkitError(message, "remove or rename it") from error
            refuses = True
        if scheme == "s3":
            yield from self._list_by_name(url, bucket, prefix, last, refuses)

    def _listed(self, url: str, last: str = "") -> Iterator[tuple[str, Info]]:
        """Yield the names and objects that obstore lists, from a little before the name `last` on.

        Raises InvalidPathError.
        """
        scheme, bucket, prefix = split_url(url)
        # obstore lists directories only; the names before the prefix are skipped, and the rest after it is not read
        directory = prefix.rpartition("/")[0] or None
        offset = _before(last or prefix) if last or len(prefix) > len(directory or "") + 1 else None
        store = open_bucket(scheme, bucket, self.options, self.options.retries)
        mark, repeats = "", 0
        try:
            pages = obstore.list(store, prefix=directory, offset=offset)
            for number, meta in enumerate(chain.from_iterable(pages), 1):
                name = meta["path"]
                repeats += name == mark
                if repeats > 1:  # an object and that with a slash behind its name are listed alike
                    raise endless_error(url)
                if number & (number - 1) == 0:  # powers of two: behind one of them is all of what is repeated
                    mark, repeats = name, 0
                if name.startswith(prefix):
                    yield name, _info(f"{scheme}://{bucket}/{name}", meta, listed=True)
                elif name > prefix:
                    return
        except InvalidPathError:
            raise
        except BaseException as error:
            raise_for(url, error, self.options)

    def _list_again(self, url: str, last: str) -> Iterator[Info]:
        """Yield the objects that follow a name, if the list goes on when it is requested from that name on.

        A page that is no list lacks the name; then there must be no object of it, nor of any name in an empty list.
        """
        while True:
            before, there = last, False
            for name, info in self._listed(url, last):
                there = there or name == before
                if name > before:
                    last = name
                    yield info
            if last == before:
                break
        if not there:
            try:
                self.head(f"gs://{split_url(url)[1]}/{last or uuid4().hex}")
            except (FileNotFoundError, Denied):
                return
            raise TryAgain("the server sends something else than a list of objects")

    def _list_by_name(self, url: str, bucket: str, prefix: str, last: str, must: bool) -> Iterator[Info]:
        """Yield the objects that follow a name; a warning says how many there are that cannot be named.

        There are none where the account refuses a login in the query of a URL, unless the list `must` go on.
        """
        from tarkit.stores.bucket_lists import listed_by_name  # slow to import

        refused: list[str] = []
        following = listed_by_name(bucket, prefix, last, self.options)
        try:
            first = [*islice(following, 1)]
        except Denied:
            if must:
                raise
            return
        for meta in chain(first, following):
            name = meta["path"].removesuffix("/")  # as obstore has it
            if name == last:  # the last one is stored with a slash
                continue
            try:
                split_named(f"s3://{bucket}/{name}")
            except Usage:
                refused.append(meta["path"])
            else:
                yield _info(f"s3://{bucket}/{name}", meta, listed=True)
        warn_of_names(url, refused, self.options)

    def server(self, url: str) -> tuple[str, ...]:
        return tuple(server_of(split_url(url)[0], self.options))

    def _bucket_of(self, url: str) -> tuple[Any, str]:
        scheme, bucket, key = split_named(url)
        return open_bucket(scheme, bucket, self.options), key


class ObjectReply(PieceReply):
    """The bytes of one reply."""

    def __init__(self, url: str, options: StoreOptions, reply: Any, start: int, info: Info | None = None) -> None:
        self._url = url
        self._options = options
        self._pieces: Iterator[Any] = iter(())
        self._remaining = 0
        if reply is not None:
            self._pieces = iter(reply.stream(min_chunk_size=_CHUNK))
            first, last = reply.range
            if first != start:
                raise TarkitError(f"{public_name(url)}: the server sent another range than requested: from {first} on")
            self._remaining = last - first
            info = _info(url, reply.meta)
            if not info.size and not reply.meta.get("e_tag"):  # of another status than 200, which obstore does not say
                raise TryAgain("the server sends an empty reply without an ETag, which is no object")
        assert info is not None
        self.info = info

    def _next_piece(self) -> Any:
        try:
            piece = next(self._pieces, b"")
        except BaseException as error:
            raise_for(self._url, error, self._options)
        self._remaining -= len(piece)
        if self._remaining > 0 and not piece:
            raise TryAgain(f"the reply ended {plural(self._remaining, 'byte')} early")
        if self._remaining < 0:
            raise TarkitError(f"{public_name(self._url)}: the server sends more bytes than it says")
        return piece

    def close(self) -> None:
        self._pieces, self._rest = iter(()), memoryview(b"")


class ObjectUpload(Upload):
    """An object that is being written: in one request if it is small, else in parts, several at a time.

    The object has a mark of this upload among its metadata, by which it is recognised if a reply is lost.

    Args:
        fresh: one that exists when it is completed is an error, if the server can tell.
    """

    def __init__(self, url: str, options: StoreOptions, fresh: bool) -> None:
        self._scheme, self._bucket, self._key = split_named(url)
        self._store = open_bucket(self._scheme, self._bucket, options, options.retries)
        self._url = url
        self._options = options
        self._fresh = fresh
        self._small: list[bytes] | None = []
        self._size = 0
        self._writer: Any = None
        self.mark = uuid4().hex
        self._marked: Any = {_MARK: self.mark}

    def write(self, data: bytes | memoryview) -> None:
        self._size += len(data)
        try:
            if self._small is not None:
                self._small.append(bytes(data))
                if self._size < PART:
                    return
                store = self._part_store()
                arguments: Any = {"buffer_size": PART, "max_concurrency": PARTS, "attributes": self._marked}
                self._writer = obstore.open_writer(store, self._key, **arguments)
                data, self._small = b"".join(self._small), None
            self._writer.write(bytes(data))
        except BaseException as error:
            raise_for(self._url, error, self._options)

    def _part_store(self) -> Any:
        """Return the bucket that parts are sent through: with `fresh` one that replaces nothing, if there is one."""
        if self._fresh and self._scheme == "s3" and _creates(self._bucket, self._key, self._options):
            return open_bucket(self._scheme, self._bucket, self._options, self._options.retries, creates=True)
        return self._store

    def close(self) -> None:
        try:
            if self._small is not None:  # in a thread, so that a signal ends it: the object is there, or it is not
                self.version = call_interruptibly(partial(self._put, b"".join(self._small)))
            else:
                self._writer.close()
        except Exception as error:
            self._accept(error)
        except BaseException as error:
            raise_for(self._url, error, self._options)

    def _put(self, data: bytes) -> str | None:
        mode: Any = "create" if self._fresh else "overwrite"
        arguments: Any = {"mode": mode, "use_multipart": False, "attributes": self._marked}
        return unquote_etag(obstore.put(self._store, self._key, data, **arguments)["e_tag"])

    def _accept(self, failure: Exception) -> None:
        """Accept the failure of the request that completes the object, if the object is there; else raise its error."""
        try:
            stored = ObjectStore(self._options).head(self._url)
            unknown = stored.mark is None and stored.size == self._size  # some servers keep no marks
            if stored.mark == self.mark:
                return
        except FileNotFoundError:
            unknown = False
        except (TarkitError, TryAgain):
            unknown = True
        try:
            raise_for(self._url, failure, self._options)
        except TryAgain as error:
            reason = str(error)
        except (TarkitError, OSError):
            if not unknown or not is_lost(failure):
                raise
            reason = "the server has not got this upload any more"
        if unknown:
            message = f"{public_name(self._url)}: {reason}; perhaps the object was written: the server does not say"
            raise Unconfirmed(message) from failure
        note = "; the parts that were sent stay on the server" if aborting(failure) else ""
        raise TryAgain(f"{reason}{note}") from failure

    def abort(self) -> None:
        writer, self._writer, self._small = self._writer, None, None
        if writer is not None and not writer.closed():
            try:
                _abort(writer)
            except FileNotFoundError:
                pass
            except Exception:  # the reason for the abort is the error that is reported
                self._options.warn(f"{public_name(self._url)}: the parts that were sent stay on the server")


def _abort(writer: Any) -> None:
    writer.__exit__(TarkitError, TarkitError("given up"), None)


_creating: dict[tuple[str, StoreOptions], bool] = {}  # whether servers take parts with the condition of `creates`


def _creates(bucket: str, key: str, options: StoreOptions) -> bool:
    """Whether a server takes parts with the condition that only the last request needs: asked for once, by two bytes.

    The library has no conditions for parts, so it is a header of all requests.
    """
    takes = _creating.get((bucket, options))
    if takes is None:
        store = open_bucket("s3", bucket, options, creates=True)
        writer = obstore.open_writer(store, key, buffer_size=1, max_concurrency=1)
        try:
            try:
                for _ in range(3):  # each waits for the part of the one before
                    writer.write(b"x")
            finally:
                _abort(writer)
            takes = True
        except PreconditionError:  # there is an object, which the server says before it takes parts
            takes = True
        except Exception as error:
            if (status_of(str(error)) or 500) in PASSING:
                return False
            takes = False
        _creating[bucket, options] = takes
    return takes


def _before(name: str) -> str | None:
    """Return a name before `name`, with few names of objects between them; None if no such name exists."""
    last = chr(ord(name[-1]) - 1)
    return f"{name[:-1]}{last}~" if last.isascii() and last.isalnum() else name[:-1].rstrip("./") or None


def _info(url: str, meta: Any, listed: bool = False) -> Info:
    """Return a description of obstore; in a list a time is no version, as it is not as precise as in a reply."""
    written, version = meta.get("last_modified"), unquote_etag(meta.get("e_tag"))
    if not listed:
        version = version or str(written or "") or None
    return Info(url, meta["size"], version, modified=int(written.timestamp()) * 10**9 if written else None)
